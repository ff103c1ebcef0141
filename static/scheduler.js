// You are the scheduler: draws the state of a game, and sends what the visitor does to its end. That
// is the shop's server or, on the site, a Postgres in the browser (scheduler-postgres.js). Both return
// the same state after each action. Where Postgres can't be loaded, a recording plays.

const WAIT_POLL_MS = 700;
// Of a recording that plays, for each step.
const WATCH_MS = 1800;
const KEYS = { u: "undo", x: "expire", r: "again" };
const STARS = "holdfast-stars-";

const byId = (id) => document.getElementById(id);
const game = byId("game");
const data = JSON.parse(byId("scheduler-data")?.textContent ?? "null");
const isSite = game?.dataset.assets !== undefined;

// ---- Texts ----

const plural = new Intl.PluralRules(data?.language);

// Fills in a message, which is a list of parts: texts, variables and selections.
function fill(parts, values) {
  return parts.map((part) => {
    if (typeof part === "string") return part;
    if (part.var) return String(values[part.var]);
    const value = values[part.select];
    const keys = [String(value), typeof value === "number" ? plural.select(value) : ""];
    const key = keys.find((it) => it in part.variants) ?? part.default;
    return fill(part.variants[key], values);
  }).join("");
}

const text = (id, values = {}) => fill(data.texts[id], values);
const resultWords = ({ kind, ...values }) => text(`scheduler-result-${kind}`, values);

function rejectionWords({ version, fence }) {
  if (fence === null) return text("scheduler-rejected", { version });
  return text("scheduler-rejected-fenced", { version, fence });
}

function stepWords(step) {
  if (!step.did) return text("scheduler-step-expired");
  const did = text("scheduler-step", { order: step.who, did: text(`scheduler-next-${step.did}`) });
  const after = effectWords(step);
  return after ? `${did} → ${after}` : did;
}

function effectWords({ result, rejection, saw, waits_for: waitsFor }) {
  if (result) return resultWords(result);
  if (rejection) {
    const rejected = rejectionWords(rejection);
    return saw === null ? rejected : text("scheduler-rejected-again", { rejected, value: saw });
  }
  if (saw !== null) return text("scheduler-saw", { value: saw });
  if (waitsFor === "ended-lease") return text("scheduler-step-waits-notice");
  return waitsFor ? text("scheduler-step-waits") : "";
}

function heading({ reached_at: reachedAt, orders, steps }) {
  if (reachedAt !== null) return text("scheduler-reached", { steps: reachedAt });
  if (orders.every((order) => order.result)) return text("scheduler-missed");
  return text("scheduler-steps", { steps: steps.length });
}

// ---- Drawing ----

// Makes an element. Attributes and children that are null, false or empty are left out.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value || value === 0) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child || child === 0));
  return element;
}

const starsOf = (count) => "★".repeat(count) + "☆".repeat(3 - count);

// Draws a state. Of a recording there is nothing to press; on the site, the lock is modelled.
function draw(state, isRecorded = false) {
  const { audit, entries, orders, steps } = state;
  const level = `scheduler-level-${state.level ?? "free"}`;
  const title = isSite ? "h2" : "h1";
  const hasFences = entries.some(({ fence }) => fence !== null);
  const classes = `goal${state.reached_at === null ? "" : " reached"}${audit.oversold ? " loss" : ""}`;
  const stars = { class: "stars", role: "img", "aria-label": text("scheduler-stars", { stars: state.stars }) };
  const books = text("scheduler-books", { opening: audit.opening, sold: audit.sold, stock: audit.stock });
  const oversold = audit.oversold > 0 && make("b", { class: "off" }, text("scheduler-oversold", { units: audit.oversold }));

  return [
    make(title, {}, text(`${level}-title`)),
    make("p", { class: !isSite && "lead" }, text(`${level}-goal`)),
    state.refusal && make("section", { class: "notice", role: "alert" },
      make("p", {}, text(`scheduler-refused-${state.refusal}`))),
    make("section", { class: classes, "aria-labelledby": "goal-title" },
      make("h2", { id: "goal-title" }, heading(state)),
      state.stars > 0 && make("p", stars, starsOf(state.stars)),
      make("p", { class: "books" }, books, oversold && [" · ", oversold])),
    make("section", { class: "game-orders", "aria-label": text("scheduler-orders") },
      orders.map((order) => orderCard(state, order, isRecorded))),
    isRecorded ? [] : controls(state),
    steps.length > 0 && make("section", { "aria-labelledby": "steps-title" },
      make("h2", { id: "steps-title" }, text("scheduler-taken")),
      make("ol", { class: "taken-steps" }, steps.map((step, at) => stepItem(step, at + 1 === state.reached_at)))),
    make("section", { "aria-labelledby": "ledger-title" },
      make("h2", { id: "ledger-title" }, text("scheduler-ledger")),
      hasFences && make("p", { class: "hint" }, text("scheduler-fences", { fences: data.fences_per_lease })),
      make("ol", { class: "ledger" }, entries.map((entry) => ledgerEntry(entry, entries)))),
  ].flat().filter(Boolean);
}

function orderCard(state, order, isRecorded) {
  const { name, lock } = order;
  const chip = lock && make("span", { class: `chip ${lock === "lost" ? "lost" : "lock"}` },
    text(lock === "lost" ? "scheduler-believes-lock" : "scheduler-has-lock"));
  const { stages } = data.strategies[state.strategy];

  return make("article", { class: "game-order", "aria-labelledby": `order-${name}` },
    make("h2", { id: `order-${name}` }, text("scheduler-order", { order: name }), chip && [" ", chip]),
    nextOf(order, isRecorded),
    order.rejection && make("p", { class: "rejected" }, `✗ ${rejectionWords(order.rejection)}`),
    make("ol", { class: "code" }, stages.map((stage, at) => segment(order, stage, stages[at + 1]?.at, isRecorded))));
}

// What has become of an order, or what it does next.
function nextOf({ name, result, waits_for: waitsFor, next }, isRecorded) {
  if (result) return make("p", { class: result.kind === "sold" ? "result sold" : "result" }, resultWords(result));
  if (waitsFor) return make("p", { class: "result waiting" }, text(`scheduler-waits-${waitsFor}`));
  const words = text(`scheduler-next-${next}`);
  if (isRecorded) return make("p", { class: "next-step-of" }, words);
  return actionButton(`step-${name}`, name, words, { class: "main", "data-step": name });
}

function actionButton(id, key, words, attributes) {
  const shortcut = key && [make("kbd", {}, key), " "];
  return make("button", { id, type: "button", "aria-keyshortcuts": key, ...attributes }, shortcut, words);
}

// A part of an order's way, from the point of the stage to the point `to`.
function segment(order, stage, to, isRecorded) {
  const isPassed = to ? order.reached.includes(to) : order.result;
  const isNext = order.at === stage.at;
  const classes = isNext ? `${stage.kind} current` : `${stage.kind}${isPassed ? " passed" : ""}`;
  const isModelled = isSite && !isRecorded && stage.kind === "lock";
  return make("li", { class: classes, "aria-current": isNext && "step" },
    make("div", {},
      make("pre", {}, codeOf(order, stage)),
      isModelled && make("small", { class: "badge" }, text("site-scheduler-modelled"))),
    isPassed && observedAt(to, order));
}

function codeOf({ read, fence }, { at, kind, statement, comment }) {
  if (at === "read" && read !== null && read < 1) return `-- ${text("scheduler-code-sold-out")}`;
  if (comment === "compute" && read !== null) return `-- ${read} − 1 = ${read - 1}`;
  if (comment) return `-- ${text(`scheduler-code-${comment}`)}`;
  if (kind !== "write") return statement;
  const written = read > 0 ? statement.replace("$2", () => read - 1) : statement;
  return fence === null ? written : written.replaceAll("$4", () => fence);
}

function observedAt(point, { read, fence }) {
  const observed = (words) => make("b", { class: "observed" }, words);
  if (point === "read") return observed(text("scheduler-saw", { value: read }));
  return point === "held" && fence !== null && observed(text("scheduler-fence", { value: fence }));
}

function stepItem(step, isGoal) {
  if (!isGoal) return make("li", {}, stepWords(step));
  return make("li", { class: "reached" }, `${stepWords(step)} `, make("b", {}, `★ ${text("scheduler-goal")}`));
}

function ledgerEntry({ seq, before, delta, after, version, fence, reason }, entries) {
  const isFork = entries.filter((other) => other.version === version).length > 1;
  const change = delta < 0 ? `−${-delta}` : `+${delta}`;
  const fenceWords = fence === null ? "" : ` · ${text("shop-ledger-fence", { fence })}`;
  return make("li", { class: isFork ? "entry forked" : "entry" },
    make("span", { class: "seq" }, `#${seq}`),
    make("span", { class: "chain" },
      make("b", {}, before), " ", make("i", {}, change), " ", make("span", { class: "to" }, "→"), " ", make("b", {}, after)),
    make("span", { class: "reason" }, text(`shop-reason-${reason}`)),
    make("span", { class: "fine" }, text("shop-ledger-version", { version }) + fenceWords),
    isFork && make("p", { class: "violation" }, make("span", { "aria-hidden": "true" }, "◆"), ` ${text("scheduler-fork")}`));
}

// The buttons below the orders, and what is said of them.
function controls(state) {
  const { orders, steps, level, minutes_left: minutes } = state;
  const hasLock = data.strategies[state.strategy].has_lock;
  const isOver = orders.every((order) => order.result);
  const next = level && data.levels[data.levels.findIndex(({ name }) => name === level) + 1];
  const nextClass = state.reached_at !== null && "main";
  const left = minutes === undefined ? "" : text("scheduler-left", { minutes });
  const undoAbout = text(isSite ? "site-scheduler-undo-about" : "scheduler-undo-about");
  const space = data.language === "zh" ? "" : " ";

  return [
    make("div", { class: "actions" },
      actionButton("undo", "U", text("scheduler-undo"), { disabled: steps.length === 0, "data-step": "undo" }),
      hasLock && !isOver && actionButton("expire", "X", text("scheduler-expire"), { "data-step": "expire" }),
      actionButton("again", "R", text("scheduler-again")),
      next && actionButton("next", null, text("scheduler-next-level"), { class: nextClass, "data-play": next.name })),
    make("p", { class: "hint keys" }, text("scheduler-keys", { orders: orders.length, leases: hasLock ? "yes" : "no" })),
    make("p", { class: "hint" }, undoAbout, space, left),
  ];
}

// ---- Stars, which the browser keeps ----

function storedStars(level) {
  try {
    return Number(localStorage.getItem(STARS + level)) || 0;
  } catch {
    return 0;
  }
}

function storeStars({ level, stars }) {
  if (!level || storedStars(level) >= stars) return;
  try {
    localStorage.setItem(STARS + level, stars);
  } catch {
    // The browser stores nothing; the stars are shown all the same.
  }
}

function showLevels() {
  for (const level of document.querySelectorAll("[data-stars-of]")) {
    level.querySelector(".stars").textContent = starsOf(storedStars(level.dataset.starsOf));
  }
}

// ---- The shop's server ----

class ServerEnd {
  async begin(choice) {
    const fields = { csrf: data.csrf, ...choice, previous: this.id };
    try {
      return await this.send("/lab/scheduler", fields);
    } catch (error) {
      if (error.status !== 409) throw error;
      // There is no room for another game: the page that a form gets says why.
      return sendForm("/lab/scheduler", fields);
    }
  }

  // Names the pause that a step ends: a second click is not a second step.
  take(who) {
    return this.send(`${this.address}/steps`, { who, since: this.pauses[who] ?? 0 });
  }

  look() {
    return this.request(this.address, {});
  }

  send(path, fields) {
    return this.request(path, { method: "POST", body: new URLSearchParams({ csrf: data.csrf, ...fields }) });
  }

  async request(path, options) {
    const response = await fetch(path, { ...options, headers: { Accept: "application/json" } });
    // A conflict of a step is the state with the reason why it has not changed.
    const isState = response.headers.get("content-type")?.startsWith("application/json");
    if (isState && (response.ok || response.status === 409)) return response.json();
    throw Object.assign(new Error(`${path}: ${response.status}`), { status: response.status });
  }

  // Goes on from a state. An undo replays its steps in another game, which has another address.
  keep({ id, pauses }) {
    this.id = id;
    this.pauses = pauses;
    this.address = `/lab/scheduler/${id}`;
    history.replaceState(null, "", this.address);
    byId("all-levels").href = `/lab/scheduler?previous=${id}`;
  }
}

// Leaves the page by a form.
function sendForm(action, fields) {
  const inputs = Object.entries(fields).map(([name, value]) => make("input", { type: "hidden", name, value }));
  const form = make("form", { method: "post", action }, inputs);
  document.body.append(form);
  form.submit();
  return new Promise(() => {});
}

// ---- A game ----

let end = data?.state ? new ServerEnd() : null;
let shown = null;
let announced = "";
let isBusy = false;
let waitTimer = 0;
// Counts what was asked for: while an answer is under way, the visitor may ask for something else.
let asked = 0;

function show(state) {
  const isFirst = shown === null;
  shown = state;
  end.keep?.(state);
  const { activeElement: focused } = document;
  const isElsewhere = focused && focused !== document.body && !game.contains(focused);
  game.replaceChildren(...draw(state));
  const target = byId(focused?.id);
  // A state that comes by itself leaves the focus where it is.
  if (isFirst || !isElsewhere) (target && !target.disabled ? target : game).focus({ preventScroll: true });

  const words = state.steps.length ? `${stepWords(state.steps.at(-1))} ${heading(state)}` : "";
  if (!isFirst && words !== announced) byId("announce").textContent = words;
  announced = words;

  storeStars(state);
  showLevels();
  lookLater();
}

// While an order waits, the server may let it go on at any time.
function lookLater() {
  clearTimeout(waitTimer);
  const waits = shown.orders.some((order) => order.waits_for);
  if (!isSite && waits) waitTimer = setTimeout(look, WAIT_POLL_MS);
}

async function look() {
  if (isBusy || document.hidden) return lookLater();
  const before = shown;
  try {
    const state = await end.look();
    // What the visitor has done since is newer.
    if (shown === before && !isBusy) show(state);
  } catch (error) {
    // The game is over, or another one has taken its place: its page says so.
    if (error.status === 404) location.reload();
    else lookLater();
  }
}

// Acts in a game: one step at a time.
async function act(action) {
  if (isBusy) return;
  isBusy = true;
  game.setAttribute("aria-busy", "true");
  const turn = asked;
  try {
    const state = await action();
    if (turn === asked) show(state);
  } catch (error) {
    fail(error);
  } finally {
    isBusy = false;
    game.removeAttribute("aria-busy");
  }
}

function fail(error) {
  if (error.isFatal) loading = null;
  if (isSite) say("site-scheduler-broken", { why: error.message });
  // The page of the game says what is the matter.
  else location.reload();
}

// What begins a game like the shown one.
function sameAgain() {
  const { level, strategy, orders } = shown;
  return level ? { level } : { strategy, orders: orders.length };
}

function begin(choice, card = null) {
  if (isSite) play(choice.level, card).catch(fail);
  else act(() => end.begin(choice));
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  const { play: level, watch: watched, step } = button?.dataset ?? {};
  if (level) begin({ level }, button.closest(".level"));
  else if (watched) watch(watched).catch(fail);
  else if (step) act(() => end.take(step));
  else if (button?.id === "again") begin(sameAgain());
});
game?.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
  const key = event.key.toLowerCase();
  const button = byId(KEYS[key] ?? `step-${key.toUpperCase()}`);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
});

// ---- The site: loads Postgres, or plays a recording ----

let loading = null;
// How much of Postgres is here, while it loads.
let progress = null;

// Says how far the page is. A bar moves below the message while the player has to wait.
function say(id, values = {}, isWaiting = false) {
  const message = id && text(id, values);
  if (byId("state").textContent !== message) byId("state").textContent = message;
  byId("state").classList.toggle("busy", isWaiting);
}

function sayProgress() {
  const isWatched = progress.id === "site-scheduler-loading" && !byId("recording").hidden;
  say(isWatched ? "site-scheduler-loading-watched" : progress.id, progress.values, true);
}

// Returns the end that plays on Postgres; loads it at the first call.
function openPostgres() {
  const assets = new URL(game.dataset.assets, location.href).href;
  const report = (id, values) => {
    progress = { id, values };
    sayProgress();
  };
  loading ??= schedulerPostgres.load({ assets, bytes: data.bytes, catalogue: data, say: report, loadScript })
    .catch((error) => {
      loading = null;
      throw error;
    })
    .finally(() => {
      progress = null;
      say("");
    });
  return loading;
}

// Begins a level; where Postgres can't be loaded, its recording plays. The level in the list, if it
// was begun there, says how far it is.
async function play(level, card) {
  asked += 1;
  const turn = asked;
  byId("recording").hidden = true;
  byId("recording").replaceChildren();
  // Steps in the game before would be lost.
  if (card) game.replaceChildren();
  if (card) card.append(byId("state"));
  else byId("recording").before(byId("state"));
  if (progress) sayProgress();

  const hasPostgres = Object.keys(data.bytes).length > 0;
  if (!hasPostgres || location.protocol === "file:" || typeof WebAssembly === "undefined") {
    say("site-scheduler-no-wasm");
    return watch(level);
  }
  try {
    end = await openPostgres();
  } catch (error) {
    if (turn !== asked) return;
    say("site-scheduler-failed", { why: error.message });
    return watch(level);
  }

  if (turn !== asked) return;
  say("site-scheduler-opening", {}, true);
  const state = await end.begin({ level });
  if (turn !== asked) return;
  say("");
  byId("recording").before(byId("state"));
  show(state);
  game.scrollIntoView();
}

function loadScript(src) {
  return new Promise((resolve, reject) => {
    const onerror = () => reject(new Error(src));
    document.head.append(Object.assign(document.createElement("script"), { src, onload: resolve, onerror }));
  });
}

// Plays the recorded game of a level, with a position for each of its steps; who wants no motion
// starts it, or goes from step to step.
async function watch(level) {
  asked += 1;
  const turn = asked;
  if (!globalThis.recordedGames) await loadScript(game.dataset.recordings);
  if (turn !== asked) return;

  const states = globalThis.recordedGames[level];
  const lastStep = states.length - 1;
  const button = (id, words) => make("button", { type: "button", id }, words);
  const playing = button("playing");
  const previous = button("previous", text("site-scheduler-previous"));
  const forward = button("forward", text("site-scheduler-next"));
  const moment = make("input", { type: "range", id: "moment", min: 0, max: lastStep, "aria-label": text("scheduler-taken") });
  const words = make("p", { class: "hint", id: "moment-words", role: "status" });
  const recorded = make("div", { id: "recorded" });
  const title = make("h2", { id: "recording-title", tabindex: -1 }, text("site-scheduler-recording"));
  const player = make("div", { class: "controls" }, playing, " ", previous, " ", forward, " ", moment);

  const recording = byId("recording");
  game.replaceChildren();
  recording.before(byId("state"));
  recording.replaceChildren(title, make("div", { class: "player" }, player, words), recorded);
  recording.hidden = false;
  if (progress) sayProgress();

  let timer = null;
  const showMoment = (at) => {
    moment.value = at;
    const step = Number(moment.value);
    const state = states[step];
    recorded.replaceChildren(...draw(state, true));
    const last = state.steps.at(-1);
    const taken = last ? stepWords(last) : text("site-scheduler-moment-first");
    words.textContent = text("site-scheduler-moment", { step, steps: lastStep, words: taken });
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    playing.textContent = text("site-scheduler-resume");
  };
  const run = () => {
    if (Number(moment.value) === lastStep) showMoment(0);
    playing.textContent = text("site-scheduler-pause");
    timer = setInterval(() => {
      if (turn !== asked) return clearInterval(timer);
      showMoment(Number(moment.value) + 1);
      if (Number(moment.value) === lastStep) pause();
    }, WATCH_MS);
  };
  const go = (by) => {
    pause();
    showMoment(Number(moment.value) + by);
  };

  moment.addEventListener("input", () => go(0));
  previous.addEventListener("click", () => go(-1));
  forward.addEventListener("click", () => go(1));
  playing.addEventListener("click", () => (timer ? pause() : run()));
  showMoment(0);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) pause();
  else run();

  title.focus({ preventScroll: true });
  // With what is said above it, if anything is.
  (byId("state").textContent ? byId("state") : recording).scrollIntoView();
}

showLevels();
if (end) show(data.state);
