// Runs a race and plays its trace in slow motion. Without this script the form leads to the page of
// the race, which has the same as a picture.

const PLAY_MS = 5200;
const FLIGHT_MS = 420;
const POLL_MS = 500;
const MIN_GAP = 0.055;
// A wait shorter than this part of the race is not shown.
const MIN_WAIT = 0.2;
const LETTERS = ["a", "b"];

const byId = (id) => document.getElementById(id);
const texts = JSON.parse(byId("race-texts").textContent);
const form = byId("race");
const stage = byId("race-stage");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const phones = LETTERS.map((letter) => byId(`race-phone-${letter}`));
const tracks = LETTERS.map((letter) => byId(`race-track-${letter}`));
const gates = LETTERS.map((letter) => stage.querySelector(`.race-gate-${letter}`));
const shelf = byId("race-shelf");
const left = byId("race-left");
const overlap = byId("race-overlap");
const crowd = byId("race-crowd");
const verdict = byId("race-verdict");
const caption = byId("race-caption");
const live = byId("race-live");
const stepButton = byId("race-step");

// Counts the plays: a later one stops the earlier ones.
let current = 0;

function text(id, variables = {}) {
  return (texts[id] ?? "").replace(/%(\w+)%/g, (all, name) => variables[name] ?? all);
}

function element(className, content = "") {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = content;
  return made;
}

const buyers = () => Number(form.elements.buyers.value);
const isCrowd = () => buyers() > 2;
const stock = () => Math.max(1, Math.floor(buyers() / 2));
const chosenLock = () => (form.elements.on.checked ? form.elements.lock.value : "none");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Shows the stage before a race of the chosen kind.
function reset() {
  current += 1;
  const on = form.elements.on.checked;
  stage.dataset.state = "idle";
  stage.dataset.lock = on ? "on" : "off";
  stage.toggleAttribute("data-crowd", isCrowd());
  crowd.hidden = !isCrowd();
  crowd.replaceChildren(...Array.from({ length: isCrowd() ? buyers() : 0 }, () => document.createElement("i")));
  for (const phone of phones) {
    phone.classList.remove("sold", "waiting", "holding", "refused");
    setToken(phone, "");
    status(phone, "");
  }
  gates.forEach((gate) => gate.classList.remove("shut"));
  tracks.forEach((track) => track.replaceChildren());
  stage.querySelectorAll(".race-flying").forEach((flying) => flying.remove());
  overlap.classList.remove("on");
  setLeft(stock());
  verdict.className = "race-verdict";
  verdict.textContent = "";
  caption.textContent = text(on ? "intro-on" : "intro-off");
  stepButton.hidden = true;
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
  if (calm.matches) return;
  const frame = stage.getBoundingClientRect();
  const center = (target) => {
    const box = target.getBoundingClientRect();
    return `translate(${box.left - frame.left + box.width / 2}px, ${box.top - frame.top + box.height / 2}px)`;
  };
  const ends = [center(left), center(phone.querySelector(".race-token"))];
  if (kind === "write") ends.reverse();
  const flying = element(`race-flying ${kind}`, value);
  stage.append(flying);
  const flight = flying.animate({ transform: ends }, { duration: FLIGHT_MS, easing: "ease-in-out" });
  await flight.finished.catch(() => {});
  flying.remove();
}

const eventOf = (lane, name) => lane.events.find((event) => event.event === name);

// Returns the receipts in the order of their writes, and which of them promise a unit that an
// earlier one promised: their orders read the same value.
function doubledLanes(race) {
  const sold = race.lanes.filter((lane) => lane.result === "sold");
  sold.sort((one, other) => (eventOf(one, "write")?.t_us ?? 0) - (eventOf(other, "write")?.t_us ?? 0));
  const used = new Set();
  return new Set(sold.filter((lane) => {
    const value = eventOf(lane, "read")?.value;
    return used.has(value) || !used.add(value);
  }));
}

// Returns the steps of two lanes in order, each at its place from 0 to 1: to scale, but far enough
// apart to be seen.
function stepsOf(race) {
  const span = Math.max(1, ...race.lanes.map((lane) => lane.events.at(-1).t_us));
  const steps = [];
  race.lanes.forEach((lane, number) => {
    const add = (kind, event, value) => event && steps.push({ kind, t: event.t_us, number, lane, value });
    const [sent, read] = [eventOf(lane, "sent"), eventOf(lane, "read")];
    add("sent", sent);
    const from = eventOf(lane, "wait") ?? sent;
    const until = eventOf(lane, "held") ?? read ?? eventOf(lane, "answered");
    if (race.lock !== "none" && until && until.t_us - from.t_us > MIN_WAIT * span) add("wait", from);
    add("read", read, read?.value);
    const write = lane.result === "sold" ? eventOf(lane, "write") : undefined;
    add("write", write, write?.value);
    add("answered", eventOf(lane, "answered"));
  });
  const order = ["sent", "wait", "read", "write", "answered"];
  steps.sort((one, other) => one.t - other.t || order.indexOf(one.kind) - order.indexOf(other.kind));
  let last = -MIN_GAP;
  for (const step of steps) {
    last = Math.max(step.t / span, last + MIN_GAP);
    step.at = last;
  }
  for (const step of steps) step.at /= last || 1;
  return { steps, span };
}

function mark(step, className, content = "", word = "") {
  const made = element(`race-mark ${className}`, content);
  if (word) {
    const small = document.createElement("small");
    small.textContent = `${word} `;
    made.prepend(small);
  }
  made.style.left = `${step.at * 100}%`;
  tracks[step.number].append(made);
}

const next = (step, kind, steps) => steps.find((it) => it.kind === kind && it.number === step.number);

function grow(made, length) {
  if (!calm.matches) made.animate({ transform: ["scaleX(0)", "none"] }, { duration: length * PLAY_MS });
}

// Draws the part of a lane from `step` to `until`, which grows with time.
function stretch(step, until, className) {
  if (!until) return;
  const made = element(`race-span ${className}`);
  made.style.left = `${step.at * 100}%`;
  made.style.width = `${(until.at - step.at) * 100}%`;
  tracks[step.number].prepend(made);
  grow(made, until.at - step.at);
}

const SHOW = {
  sent(step, phone) {
    status(phone, text("status-order"));
    mark(step, "small");
  },
  wait(step, phone, race, steps) {
    stretch(step, next(step, "read", steps), "wait");
    phone.classList.add("waiting");
    status(phone, text("status-wait"));
    gates[step.number].classList.add("shut");
  },
  read(step, phone, race, steps) {
    const isLocked = race.lock !== "none";
    phone.classList.remove("waiting");
    phone.classList.toggle("holding", isLocked);
    gates[step.number].classList.remove("shut");
    stretch(step, next(step, "write", steps), isLocked ? "lock" : "");
    mark(step, "read", step.value, text("entry-read"));
    fly(phone, step.value, "read").then(() => setToken(phone, step.value));
    status(phone, text("status-read", { value: step.value }));
    const other = steps.find((it) => it.kind === "read" && it.number !== step.number);
    const write = steps.find((it) => it.kind === "write");
    if (other && write && other.at < step.at && step.at < write.at) {
      overlap.style.left = `calc(1.9rem + ${step.at} * (100% - 3rem))`;
      overlap.style.width = `calc(${write.at - step.at} * (100% - 3rem))`;
      overlap.classList.add("on");
      grow(overlap, write.at - step.at);
    }
  },
  write(step, phone) {
    mark(step, "write", step.value, text("entry-wrote"));
    setToken(phone, step.value, true);
    status(phone, text("status-write", { value: step.value }));
    phone.classList.remove("holding");
    fly(phone, step.value, "write").then(() => setLeft(step.value));
  },
  answered(step, phone) {
    const { result } = step.lane;
    phone.classList.remove("holding", "waiting");
    gates[step.number].classList.remove("shut");
    phone.classList.add(result === "sold" ? "sold" : "refused");
    status(phone, text({ sold: "status-sold", "sold-out": "status-sold-out" }[result] ?? "status-refused"));
  },
};

function describe(step) {
  const variables = { buyer: step.lane.buyer, value: step.value };
  if (step.kind !== "answered") return text(`step-${step.kind}`, variables);
  return text(step.lane.result === "sold" ? "step-sold" : "step-refused", variables);
}

function showStep(step, race, steps) {
  SHOW[step.kind](step, phones[step.number], race, steps);
  caption.textContent = describe(step);
}

async function playDuel(race) {
  reset();
  const run = current;
  race.lanes.forEach((lane, number) => {
    phones[number].querySelector(".race-server").textContent = text("server", { name: lane.replica });
  });
  const { steps, span } = stepsOf(race);
  if (calm.matches) {
    steps.forEach((step) => showStep(step, race, steps));
    offerSteps(race, steps);
  } else {
    const begin = performance.now();
    for (const step of steps) {
      await sleep(begin + step.at * PLAY_MS - performance.now());
      if (run !== current) return;
      showStep(step, race, steps);
    }
    await sleep(FLIGHT_MS);
    if (run !== current) return;
  }
  const ms = Math.max(1, Math.round(span / 1000));
  finish(race, text("scale", { ms, factor: Math.round(PLAY_MS / ms) }));
}

// Offers to go through the steps one by one, in place of motion.
function offerSteps(race, steps) {
  let index = 0;
  stepButton.hidden = false;
  stepButton.onclick = () => {
    if (index === 0) {
      reset();
      stepButton.hidden = false;
    }
    if (index < steps.length) showStep(steps[index], race, steps);
    else finish(race, "");
    index = index < steps.length ? index + 1 : 0;
  };
}

async function playCrowd(race) {
  reset();
  setLeft(race.stock);
  const run = current;
  const doubled = doubledLanes(race);
  const time = (lane) => (eventOf(lane, "write") ?? lane.events.at(-1)).t_us;
  const lanes = [...race.lanes].sort((one, other) => time(one) - time(other));
  const [first, last] = [time(lanes[0]), time(lanes.at(-1))];
  const begin = performance.now();
  let sold = 0;
  for (const [number, lane] of lanes.entries()) {
    const at = ((time(lane) - first) / Math.max(1, last - first)) * PLAY_MS * 0.8;
    const wait = begin + at - performance.now();
    if (!calm.matches && wait > 4) await sleep(wait);
    if (run !== current) return;
    const isSold = lane.result === "sold";
    crowd.children[number].className = !isSold ? "refused" : doubled.has(lane) ? "doubled" : "sold";
    if (isSold) {
      sold += 1;
      setLeft(eventOf(lane, "write")?.value ?? 0);
      verdict.textContent = text("verdict", { sold, existed: race.stock });
      verdict.classList.toggle("loss", [...crowd.children].some((cell) => cell.className === "doubled"));
    }
  }
  finish(race, "");
}

function explain(race) {
  const count = (name) => race.lanes.filter((lane) => lane.result === name).length;
  const doubled = doubledLanes(race).size;
  const isDuel = race.lanes.length === 2;
  const other = race.lanes.find((lane) => !["sold", "sold-out", "no-answer"].includes(lane.result));
  if (count("no-answer")) return text("no-answer", { count: count("no-answer") });
  if (doubled && isDuel) {
    const value = eventOf(race.lanes[0], "read")?.value ?? race.stock;
    return text("lost", { value, after: value - 1 });
  }
  if (doubled) return doubled === 1 ? text("crowd-lost-one") : text("crowd-lost", { doubled });
  if (other) return text("other", { result: other.result });
  const [winner, loser] = ["sold", "sold-out"].map((name) => race.lanes.find((lane) => lane.result === name));
  if (isDuel && winner && loser) return text("held", { winner: winner.buyer, loser: loser.buyer });
  return text("crowd-held");
}

// Shows the result, and says it once to a screen reader.
function finish(race, scale) {
  const isLost = doubledLanes(race).size > 0;
  stage.dataset.state = isLost ? "lost" : "held";
  setLeft(race.left);
  for (const [number, lane] of race.lanes.entries()) {
    if (race.lanes.length === 2 && lane.result === "no-answer") status(phones[number], text("status-no-answer"));
  }
  verdict.textContent = text("verdict", { sold: race.sold, existed: race.stock });
  verdict.classList.toggle("loss", isLost);
  verdict.classList.add("slam");
  caption.textContent = explain(race);
  live.textContent = text("announced", { verdict: verdict.textContent, caption: caption.textContent });
  const servers = new Set(race.lanes.map((lane) => lane.replica)).size;
  const proof = { 1: "proof-one", 2: "proof-two" }[servers] ?? "proof-many";
  // A Chinese full stop needs no space.
  byId("race-proof-text").textContent = `${text(proof, { servers })} ${scale}`.replace("。 ", "。").trim();
  const entries = race.lanes.length > 2 ? "entries-crowd" : race.sold === 1 ? "entries-one" : "entries";
  byId("race-entries").textContent = text(entries);
  byId("race-entries").href = `/race/${race.id}#ledger`;
  byId("race-link").href = `/race/${race.id}`;
  byId("race-proof").classList.remove("pending");
  form.dataset.race = race.id;
  showResult();
}

function fail(message) {
  caption.textContent = message;
  live.textContent = message;
}

async function fetchRace(url, options) {
  const response = await fetch(url, { ...options, headers: { Accept: "application/json", "Content-Type": "application/json" } });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? text("error"));
  return body;
}

// Scrolls to where the result will appear, below the stage: both fit on one screen.
function showResult() {
  verdict.parentElement.scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

function play(race) {
  showResult();
  return race.lanes.length === 2 ? playDuel(race) : playCrowd(race);
}

async function run() {
  reset();
  const run = current;
  const request = { lock: chosenLock(), buyers: buyers(), stock: stock() };
  caption.textContent = text("starting");
  try {
    let race = await fetchRace("/api/race", { method: "POST", body: JSON.stringify(request) });
    while (run === current && ["queued", "running"].includes(race.state)) {
      if (race.position) fail(text("queued", { position: race.position }));
      await sleep(POLL_MS);
      race = await fetchRace(`/api/race/${race.id}`);
    }
    if (run !== current) return;
    if (race.state === "failed") fail(text("failed"));
    else await play(race);
  } catch (error) {
    if (run === current) fail(error instanceof TypeError ? text("error") : error.message);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.addEventListener("input", reset);
// The page of a race has its trace, to be played again.
const stored = byId("race-data");
if (stored) {
  const replay = byId("race-replay");
  replay.hidden = false;
  replay.addEventListener("click", () => {
    const race = JSON.parse(stored.textContent);
    form.elements.buyers.value = race.buyers;
    play(race);
  });
}
// A browser restores the inputs of a page that it has shown before.
reset();
