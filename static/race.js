// Runs a race and plays its trace in slow motion. What is shown comes from the server: the drawing,
// each step in words and the result. Without this script the form leads to the page of the race,
// which has the same as a picture. On the site, which has no server, it plays recorded races.

const FLIGHT_MS = 420;
const POLL_MS = 500;
const LETTERS = ["a", "b"];

const byId = (id) => document.getElementById(id);
const texts = JSON.parse(byId("race-texts").textContent);
const form = byId("race");
const stage = byId("race-stage");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const phones = LETTERS.map((letter) => byId(`race-phone-${letter}`));
const gates = LETTERS.map((letter) => stage.querySelector(`.race-gate-${letter}`));
const shelf = byId("race-shelf");
const left = byId("race-left");
const drawing = byId("race-drawing");
const crowd = byId("race-crowd");
const verdict = byId("race-verdict");
const caption = byId("race-caption");
const live = byId("race-live");
const proof = byId("race-proof");
const replayButton = byId("race-replay");
const stepButton = byId("race-step");
const scrubber = byId("race-scrub");
const recorded = JSON.parse(byId("race-films")?.textContent ?? "null");
// The switches: the lock, a pause of its holder, and its fence.
const { on, pause, fence } = form.elements;
const hints = form.querySelectorAll(".race-hint");

// Counts the plays: a later one stops the earlier ones.
let current = 0;
// The race that is shown, and its step that comes next.
let shown = null;
let nextStep = 0;
// While the scrubber moves, nothing flies.
let isStill = false;

function text(id, variables = {}) {
  return (texts[id] ?? "").replace(/%(\w+)%/g, (all, name) => variables[name] ?? all);
}

const buyers = () => Number(form.elements.buyers.value);
const isCrowd = () => buyers() > 2;
const stock = () => Math.max(1, Math.floor(buyers() / 2));
const fencedLock = () => (fence.checked ? "fenced" : form.elements.lock.value);
const chosenLock = () => (on.checked ? fencedLock() : "none");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Shows what keeps its place while it is not seen, or hides it.
const reveal = (element, isShown) => element.classList.toggle("pending", !isShown);

// Prepares for another race: the line below, and the buttons, were about the last one.
function reset() {
  shown = null;
  [replayButton, stepButton, proof].forEach((element) => reveal(element, false));
  clear();
}

// Shows the stage before a race of the chosen kind.
function clear() {
  current += 1;
  nextStep = 0;
  if (scrubber) scrubber.value = 0;
  stage.dataset.state = "idle";
  stage.dataset.lock = on.checked ? "on" : "off";
  stage.toggleAttribute("data-crowd", isCrowd());
  crowd.hidden = !isCrowd();
  crowd.replaceChildren(...Array.from({ length: isCrowd() ? buyers() : 0 }, () => document.createElement("i")));
  for (const phone of phones) {
    phone.classList.remove("sold", "waiting", "holding", "paused", "late", "refused");
    setToken(phone, "");
    status(phone, "");
  }
  gates.forEach((gate) => gate.classList.remove("shut"));
  drawing.replaceChildren();
  stage.querySelectorAll(".race-flying").forEach((flying) => flying.remove());
  setLeft(stock());
  verdict.className = "race-verdict";
  verdict.textContent = "";
  caption.textContent = text(on.checked ? (chosenLock() === "local" ? "intro-local" : "intro-on") : "intro-off");
  hints.forEach((hint) => reveal(hint, false));
  byId("race-crowd-size").textContent = isCrowd() ? text("crowd", { buyers: buyers(), stock: stock() }) : text("crowd-two");
  const question = byId("race-question");
  if (question) {
    question.textContent = isCrowd() ? text("question-crowd", { buyers: buyers(), stock: stock() }) : text("question");
    document.title = `${question.textContent} · Holdfast`;
  }
  byId("race-go").textContent = isCrowd() ? text("buy-all", { buyers: buyers() }) : text("buy-both");
}

function setLeft(units) {
  left.textContent = units;
  shelf.classList.toggle("empty", units <= 0);
}

function status(phone, content) {
  phone.querySelector(".race-status").textContent = content;
}

function setToken(phone, value, wrote = false) {
  const token = phone.querySelector(".race-token");
  token.textContent = value;
  token.classList.toggle("has", value !== "");
  token.classList.toggle("wrote", wrote);
}

// Lets a value fly between the shelf and a phone.
async function fly(phone, value, kind) {
  if (calm.matches || isStill) return;
  const frame = stage.getBoundingClientRect();
  const center = (target) => {
    const box = target.getBoundingClientRect();
    return `translate(${box.left - frame.left + box.width / 2}px, ${box.top - frame.top + box.height / 2}px)`;
  };
  const ends = [center(left), center(phone.querySelector(".race-token"))];
  if (kind === "write") ends.reverse();
  const flying = document.createElement("span");
  flying.className = `race-flying ${kind}`;
  flying.textContent = value;
  stage.append(flying);
  const flight = flying.animate({ transform: ends }, { duration: FLIGHT_MS, easing: "ease-in-out" });
  await flight.finished.catch(() => {});
  flying.remove();
}

// What a step changes beside its drawing and its words.
const SHOW = {
  wait(step, phone) {
    phone.classList.add("waiting");
    gates[step.lane].classList.add("shut");
  },
  held(step, phone) {
    phone.classList.remove("waiting");
    phone.classList.add("holding");
    gates[step.lane].classList.remove("shut");
  },
  read(step, phone) {
    fly(phone, step.value, "read").then(() => setToken(phone, step.value));
  },
  write(step, phone) {
    setToken(phone, step.value, true);
    phone.classList.remove("holding");
    fly(phone, step.value, "write").then(() => setLeft(step.value));
  },
  paused(step, phone) {
    phone.classList.add("paused");
  },
  expired(step, phone) {
    phone.classList.remove("holding");
    phone.classList.add("late");
  },
  resumed(step, phone) {
    phone.classList.remove("paused");
  },
  answered(step, phone) {
    phone.classList.remove("holding", "waiting", "late");
    gates[step.lane].classList.remove("shut");
    phone.classList.add(step.isSold ? "sold" : "refused");
  },
};
SHOW.broken = SHOW.answered;

// Lets a part of the drawing grow from its left edge, in its part of the playback.
function grow(part, playMs) {
  if (calm.matches || playMs === 0) return;
  const duration = (parseFloat(part.getAttribute("width")) / 100) * playMs;
  part.animate({ transform: ["scaleX(0)", "none"] }, { duration });
}

function showStep(race, index, growMs) {
  const step = race.steps[index];
  const phone = phones[step.lane];
  SHOW[step.kind]?.(step, phone);
  if (step.status) status(phone, step.status);
  if (step.caption) caption.textContent = step.caption;
  const parts = [drawing.querySelectorAll(".step")[index]];
  const overlap = drawing.querySelector(".overlap.later");
  if (overlap && parseFloat(overlap.getAttribute("x")) <= step.at * 100 + 0.01) parts.push(overlap);
  for (const part of parts) {
    part.classList.remove("later");
    part.querySelectorAll(".activity").forEach((bar) => grow(bar, growMs));
  }
  if (parts[1]) grow(overlap, growMs);
}

function showDrawing(race) {
  race.servers.forEach((server, lane) => {
    phones[lane].querySelector(".race-server").textContent = server;
  });
  drawing.innerHTML = race.drawing;
  drawing.querySelectorAll(".step, .overlap").forEach((part) => part.classList.add("later"));
}

async function playDuel(race) {
  clear();
  const run = current;
  showDrawing(race);
  const begin = performance.now();
  follow(race, run, begin);
  for (const [index, step] of race.steps.entries()) {
    if (!calm.matches) await sleep(begin + step.at * race.playMs - performance.now());
    if (run !== current) return;
    showStep(race, index, race.playMs);
  }
  if (!calm.matches) await sleep(FLIGHT_MS);
  if (run === current) finish(race);
}

// Shows the next step of two orders; the first one on an empty stage, the result after the last.
function step() {
  const race = shown;
  if (nextStep === 0) {
    clear();
    showDrawing(race);
  }
  if (nextStep === race.steps.length) return finish(race);
  showStep(race, nextStep, 0);
  nextStep += 1;
}

async function playCrowd(race) {
  clear();
  setLeft(race.stock);
  const run = current;
  const begin = performance.now();
  follow(race, run, begin);
  for (const [number, cell] of race.cells.entries()) {
    const wait = begin + cell.at * race.playMs - performance.now();
    if (!calm.matches && wait > 4) await sleep(wait);
    if (run !== current) return;
    showCell(number, cell);
  }
  finish(race);
}

function showCell(number, cell) {
  // A race of one buyer has no place here.
  crowd.children[number]?.setAttribute("class", cell.kind);
  if (!cell.verdict) return;
  verdict.classList.toggle("loss", Boolean(cell.isOversold));
  setLeft(cell.left);
  verdict.textContent = cell.verdict;
}

// Moves the scrubber with a playback.
function follow(race, run, begin) {
  if (!scrubber || calm.matches) return;
  const move = () => {
    if (run !== current || stage.dataset.state !== "idle") return;
    scrubber.value = ((performance.now() - begin) / race.playMs) * scrubber.max;
    requestAnimationFrame(move);
  };
  requestAnimationFrame(move);
}

// Shows a race as it is at a part of its playback, from 0 to 1.
function seek(race, part) {
  clear();
  isStill = true;
  if (race.cells) {
    setLeft(race.stock);
    race.cells.forEach((cell, number) => cell.at <= part && showCell(number, cell));
  } else {
    showDrawing(race);
    race.steps.forEach((step, index) => step.at <= part && showStep(race, index, 0));
  }
  isStill = false;
  if (part >= 1) finish(race);
  scrubber.value = part * scrubber.max;
}

// Keeps a race to be played again, as a whole or, with two orders, in steps.
function keep(race) {
  shown = race;
  reveal(replayButton, true);
  reveal(stepButton, !race.cells);
}

// Shows the result, and says it once to a screen reader.
function finish(race) {
  const hint = race.next && byId(`race-hint-${race.next}`);
  nextStep = 0;
  stage.dataset.state = race.isLost ? "lost" : "held";
  setLeft(race.left);
  verdict.textContent = race.verdict;
  verdict.classList.toggle("loss", race.isOversold);
  verdict.classList.add("slam");
  caption.textContent = race.caption;
  live.textContent = hint ? `${race.announced} ${hint.textContent}` : race.announced;
  if (hint) reveal(hint, true);
  byId("race-proof-text").textContent = race.proof;
  if (!recorded) showLinks(race);
  reveal(proof, true);
  keep(race);
  if (scrubber) scrubber.value = scrubber.max;
  form.dataset.race = race.id;
  showResult();
}

function showLinks(race) {
  byId("race-entries").textContent = race.entries;
  byId("race-entries").href = `/race/${race.id}#ledger`;
  byId("race-link").href = `/race/${race.id}`;
  byId("race-file").href = `/race/${race.id}/file`;
  byId("race-why").href = `/lab/lessons/${race.lesson}`;
  byId("race-why").textContent = race.why;
  byId("race-image").href = `/race/${race.id}/picture.svg`;
}

function fail(message) {
  caption.textContent = message;
  live.textContent = message;
}

async function fetchJson(url, options) {
  const response = await fetch(url, { ...options, headers: { Accept: "application/json", "Content-Type": "application/json" } });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? text("error"));
  return body;
}

// Scrolls to where the result will appear, below the stage: both fit on one screen. A recorded race
// plays by itself, also in a frame of another page, which nothing may scroll.
function showResult() {
  if (recorded) return;
  verdict.parentElement.scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

function play(race) {
  showResult();
  return race.cells ? playCrowd(race) : playDuel(race);
}

async function run() {
  reset();
  const run = current;
  const request = { lock: chosenLock(), buyers: buyers(), stock: stock(), pause: pause.checked };
  if (recorded) return play(recordedRace(request));
  caption.textContent = text("starting");
  try {
    let race = await fetchJson("/api/race", { method: "POST", body: JSON.stringify(request) });
    while (run === current && ["queued", "running"].includes(race.state)) {
      if (race.position) fail(text("queued", { position: race.position }));
      await sleep(POLL_MS);
      race = await fetchJson(`/api/race/${race.id}`);
    }
    if (run !== current) return;
    if (race.state === "failed") return fail(text("failed"));
    const film = await fetchJson(`/race/${race.id}/film`);
    if (run === current) await play(film);
  } catch (error) {
    if (run === current) fail(error instanceof TypeError ? text("error") : error.message);
  }
}

const recordedRace = ({ lock, buyers, pause }) =>
  recorded.find((race) => race.lock === lock && race.buyers === buyers && race.pause === pause);

// Sets the other choices to what one demands: a pause and a fence are of a lock in Redis, and a
// pause is of two buyers.
function settle(target) {
  const isOn = target.checked;
  if (target === on && !isOn) pause.checked = fence.checked = false;
  if (target.name === "lock" && target.value !== "owner") pause.checked = fence.checked = false;
  if (target.name === "buyers" && isCrowd()) pause.checked = false;
  // A crowd takes turns at the lock that has a queue: the other one is polled, and most would give up.
  const isForCrowd = isCrowd() && on.checked && form.elements.lock.value === "owner";
  if (isForCrowd && (target === on || target.name === "buyers")) fence.checked = true;
  // Recorded is only what the story has: the fence with a pause.
  if (recorded && target === fence && isOn) pause.checked = true;
  if (recorded && !pause.checked) fence.checked = false;
  if (isOn && (target === pause || target === fence)) {
    on.checked = true;
    form.elements.lock.value = "owner";
  }
  if (pause.checked) form.elements.buyers.value = 2;
}

// Orders are sent by a button or a switch; of recorded races, any choice plays at once.
function choose(target) {
  settle(target);
  if (recorded || target.type === "checkbox") run();
  else reset();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.addEventListener("input", ({ target }) => target !== scrubber && choose(target));
hints.forEach((hint) => hint.addEventListener("click", () => hint.parentElement.querySelector("input").click()));
scrubber?.addEventListener("input", () => {
  shown ??= recordedRace({ lock: chosenLock(), buyers: buyers(), pause: pause.checked });
  seek(shown, scrubber.value / scrubber.max);
  keep(shown);
});
// A lock is chosen to be used, also the one that was chosen before.
form.addEventListener("click", ({ target }) => {
  if (target.name !== "lock" || on.checked) return;
  on.checked = true;
  choose(target);
});
replayButton.addEventListener("click", () => play(shown));
stepButton.addEventListener("click", step);
// The page of a race has it, to be played again.
const stored = byId("race-data");
// A browser restores the inputs of a page that it has shown before.
if (stored) form.reset();
reset();
if (stored) keep(JSON.parse(stored.textContent));
if (recorded) run();
