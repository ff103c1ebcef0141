// You are the scheduler, without a server: the statements of the shop on a Postgres in the browser
// (PGlite, in postgres-worker.js). One connection plays both orders: each statement commits itself,
// as in the shop's levels. The lock in Redis is modelled (`lock`). Where Postgres can't be loaded, a
// recording plays.

const element = (id) => document.getElementById(id);
const data = JSON.parse(element("scheduler-data").textContent);
const game = element("game");
const recording = element("recording");
const plural = new Intl.PluralRules(data.language);
const USER = "00000000-0000-4000-8000-000000000001";
const NAME = "The last units";
const PRICE = 100;
const FENCES_PER_GRANT = 64;
// Of a recording that plays, for each step.
const WATCH_MS = 1800;
const NEXT = {
  wait: ({ lock }) => (lock ? "scheduler-next-lock" : "scheduler-next-read"),
  held: () => "scheduler-next-read",
  read: ({ before }) => (before < 1 ? "scheduler-next-sold-out" : "scheduler-next-compute"),
  commit: () => "scheduler-next-write-commit",
  write: () => "scheduler-next-acknowledge",
  committed: ({ lock }) => (lock ? "scheduler-next-unlock" : "scheduler-next-finish"),
  release: () => "scheduler-next-respond",
};

function fill(parts, values) {
  return parts.map((part) => {
    if (typeof part === "string") return part;
    if (part.var) return String(values[part.var]);
    const value = values[part.select];
    const key = [String(value), typeof value === "number" ? plural.select(value) : ""].find((it) => it in part.variants);
    return fill(part.variants[key ?? part.default], values);
  }).join("");
}

const text = (id, values = {}) => fill(data.texts[id], values);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// A bar moves below the message while the player has to wait.
function state(message, isBusy = false) {
  if (element("state").textContent !== message) element("state").textContent = message;
  element("state").classList.toggle("busy", isBusy);
}

function loadScript(address) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: address, onload: resolve, onerror: () => reject(new Error(address)) });
    document.head.append(script);
  });
}

// ---- Postgres ----

// Calls functions of postgres-worker.js.
class Postgres {
  constructor(script) {
    this.lastId = 0;
    this.calls = new Map();
    this.worker = new Worker(script);
    this.worker.addEventListener("message", ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.calls.get(id);
      this.calls.delete(id);
      if (error === undefined) resolve(result);
      else reject(new Error(error));
    });
    // Its file is missing, or not allowed.
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      for (const { reject } of this.calls.values()) reject(new Error(event.message || script));
    });
  }

  call(name, ...values) {
    this.lastId += 1;
    const id = this.lastId;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      this.worker.postMessage({ id, name, values });
    });
  }

  end() {
    this.worker.terminate();
  }
}

let starting = null;
// While Postgres loads, says how much of it is here.
let sayLoaded = null;

// Returns the running Postgres with the shop's tables; loads it at the first call.
function postgres() {
  starting ??= start().catch((error) => {
    starting = null;
    throw error;
  });
  return starting;
}

async function start() {
  const assets = new URL(game.dataset.assets, location.href).href;
  const [fsBundle, pgliteWasm, initdbWasm] = await download(`${assets}pglite/`, ["pglite.data", "pglite.wasm", "initdb.wasm"]);
  const modules = await Promise.all([pgliteWasm, initdbWasm].map(async (file) => WebAssembly.compile(await file.arrayBuffer())));
  const [pgliteWasmModule, initdbWasmModule] = modules;
  await loadScript(`${assets}shop-sql.js`);

  state(text("site-scheduler-starting"), true);
  const db = new Postgres(`${assets}postgres-worker.js`);
  try {
    await db.call("start", `${assets}pglite/index.js`, { fsBundle, pgliteWasmModule, initdbWasmModule });
    const { migrations } = window.shopSql;
    for (const [done, migration] of migrations.entries()) {
      state(text("site-scheduler-tables", { done, all: migrations.length }), true);
      await db.call("exec", migration);
    }
  } catch (error) {
    db.end();
    throw error;
  }
  state("");
  return db;
}

// Loads files, and says how much of them is here. PGlite, which can load them too, waits for ever
// if one of them is missing or not allowed.
async function download(folder, names) {
  const total = names.reduce((sum, name) => sum + data.bytes[name], 0);
  const stop = new AbortController();
  let loaded = 0;
  sayLoaded = () => {
    // Not each part: a screen reader says what changes here.
    const tenth = Math.floor((loaded / total) * 10) / 10;
    const message = recording.hidden ? "site-scheduler-loading" : "site-scheduler-loading-watched";
    state(text(message, { loaded: Math.round((tenth * total) / 1e6), total: Math.round(total / 1e6) }), true);
  };
  sayLoaded();
  const load = async (name) => {
    const response = await fetch(folder + name, { signal: stop.signal });
    if (!response.ok) throw new Error(`${name}: ${response.status}`);
    const parts = [];
    let length = 0;
    for await (const part of chunks(response.body)) {
      parts.push(part);
      length += part.length;
      loaded += part.length;
      sayLoaded?.();
    }
    if (length !== data.bytes[name]) throw new Error(`${name}: ${length} / ${data.bytes[name]}`);
    return new Blob(parts);
  };
  try {
    return await Promise.all(names.map(load));
  } catch (error) {
    stop.abort();
    throw error;
  } finally {
    sayLoaded = null;
  }
}

// Of a stream, which not every browser can iterate over.
async function* chunks(stream) {
  const reader = stream.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) yield value;
}

const list = (...values) => `{${values.map((value) => (value === null ? "null" : `"${value}"`)).join(",")}}`;

// A statement that the shop sends. Values are arrays in Postgres' notation, as the shop's are.
async function send(name, values) {
  return (await postgres()).call("query", window.shopSql.statements[name], values);
}

// ---- A game ----

let current = null;

class Game {
  constructor(level) {
    this.level = level;
    this.hasLock = level.points.includes("held");
    this.stock = level.orders - 1;
    this.sku = `last-${crypto.randomUUID()}`;
    this.orders = ["A", "B", "C"].slice(0, level.orders).map((name) => ({ name, at: "wait", passed: [], result: null }));
    // The modelled lock in Redis: who holds it, and the last fence.
    this.lock = { holder: null, fence: 0 };
    this.steps = [];
    this.reachedAt = null;
  }

  async begin() {
    await send("create_item", [this.sku, NAME, PRICE, this.stock, "lab", null, "", null]);
    await send("open_ledger", [this.sku, this.stock, crypto.randomUUID()]);
    await this.look();
  }

  async look() {
    const [audit] = await send("audit", [this.sku, 100]);
    this.audit = Object.fromEntries(Object.entries(audit).map(([name, value]) => [name.replace(/!$/, ""), value]));
    const db = await postgres();
    this.entries = await db.call("query", "select seq, before, delta, after, version, fence, reason from stock_ledger where sku = $1 order by seq desc", [this.sku]);
    this.isSound = ["drift", "oversold", "breaks", "forks"].every((name) => this.audit[name] === 0);
  }

  isOver() {
    return this.orders.every((order) => order.result);
  }

  // Names what an order does next.
  next(order) {
    return NEXT[order.at]({ lock: this.hasLock, before: order.before });
  }

  isReached() {
    const isSound = this.isSound && this.audit.sold === 1;
    switch (this.level.goal) {
      case "oversold": return this.audit.oversold > 0;
      case "conflict": return isSound && this.orders.some((order) => order.hasConflict);
      case "stale-write": return isSound && this.orders.some((order) => order.result?.kind === "stale");
      default: throw new Error(`no such goal: ${this.level.goal}`);
    }
  }

  stars() {
    const more = this.reachedAt - this.level.solution.length;
    if (!this.reachedAt) return 0;
    return more <= 0 ? 3 : more <= data.two_stars_within ? 2 : 1;
  }

  // Takes a step: of an order, or the end of the lease.
  async step(who) {
    const order = this.orders.find(({ name }) => name === who);
    if (who === "X") {
      // It is not told: it believes that it has the lock.
      for (const holder of this.orders) holder.hasLostLock ||= holder.name === this.lock.holder;
      this.lock.holder = null;
      this.steps.push({ who, words: text("scheduler-step-expired") });
    } else {
      if (!order || order.result || order.isWaiting) return false;
      const did = text("scheduler-step", { order: who, did: text(this.next(order)) });
      const after = await this.advance(order);
      this.steps.push({ who, words: after ? `${did} → ${after}` : did });
    }
    this.grant();
    await this.look();
    if (!this.reachedAt && this.isReached()) this.reachedAt = this.steps.length;
    return true;
  }

  // Moves an order to its next point; returns what it saw, in words.
  async advance(order) {
    const { points } = this.level;
    const to = points[points.indexOf(order.at) + 1];
    let seen = "";
    switch (to) {
      case "held":
        if (this.lock.holder) {
          order.isWaiting = true;
          return text("scheduler-step-waits");
        }
        this.take(order);
        return "";
      case "read":
        await this.read(order);
        seen = text("scheduler-saw", { value: order.before });
        break;
      case "commit":
        // The shop decides here that nothing is left, and writes nothing.
        if (order.before < 1) return this.leave(order, { kind: "sold-out" });
        break;
      case "write":
        if (!(await this.write(order))) return this.refuse(order);
        break;
      case "release":
        this.release(order);
        break;
      case undefined:
        order.passed.push("end");
        order.result = order.outcome ?? { kind: "sold", before: order.before, after: order.before - 1 };
        return this.result(order.result);
      default:
    }
    order.passed.push(to);
    order.at = to;
    return seen;
  }

  take(order) {
    order.isWaiting = false;
    this.lock = { holder: order.name, fence: this.lock.fence + (this.lock.fence ? FENCES_PER_GRANT : 1) };
    order.fence = this.level.guard === "version-and-fence" ? this.lock.fence : null;
    order.passed.push("held");
    order.at = "held";
  }

  // Redis gives a free lock to who waits.
  grant() {
    const next = this.orders.find((order) => order.isWaiting);
    if (next && !this.lock.holder) this.take(next);
  }

  release(order) {
    if (this.lock.holder === order.name) this.lock.holder = null;
  }

  leave(order, outcome) {
    this.release(order);
    order.outcome = outcome;
    order.passed.push("release");
    order.at = "release";
    return "";
  }

  // The row has another version than the one that was read: who holds a later fence has written,
  // or, without a fence, the order reads again, as in the shop. Its card says so from now on.
  async refuse(order) {
    await this.look();
    const [{ version, fence }] = this.entries;
    order.rejected = text(fence === null ? "site-scheduler-rejected" : "site-scheduler-rejected-fenced", { version, fence });
    if (this.level.guard === "version-and-fence") {
      this.leave(order, { kind: "stale" });
      return order.rejected;
    }
    await this.read(order);
    order.hasConflict = true;
    order.passed = order.passed.filter((point) => point !== "commit");
    order.at = "read";
    return text("site-scheduler-rejected-again", { rejected: order.rejected, value: order.before });
  }

  async read(order) {
    const [row] = await send("read", [list(this.sku), "{}", list(USER), false]);
    order.before = row["stock?"];
    order.version = row["version?"];
  }

  // The statement that places an order, with the guards of the level's strategy.
  async write(order) {
    const comparesVersion = this.level.guard !== "none";
    const id = crypto.randomUUID();
    const now = new Date().toISOString();
    const [{ "holds!": holds }] = await send("place", [
      list(this.sku), list(comparesVersion ? order.version : null), list(order.fence ?? null), list(order.before - 1), list(1),
      list(id), list(USER), list(PRICE), list(id), list(now), list("\\\\x00"), list("\\\\x00"), list(now),
      list(id), list(USER), list(this.sku), list(1), list(PRICE), list(null), list(order.before), list(order.version),
      list(order.fence ?? null), list(crypto.randomUUID()), "/api/orders", list(crypto.randomUUID()), null, list(1),
      list(NAME), list(null),
    ]);
    return holds;
  }

  result({ kind, before, after }) {
    return text(`scheduler-result-${kind}`, { before, after });
  }
}

// ---- What is shown ----

function segment(of, order, { kind, code }, index) {
  const { points } = of.level;
  const [from, to] = [points[index], points[index + 1]];
  const isSoldOut = order.before < 1;
  const value = order.before === undefined || isSoldOut ? "$2" : order.before - 1;
  const isPassed = order.passed.includes(to ?? "end");
  const isNext = !order.result && !order.isWaiting && order.at === from;
  let sent = code;
  if (to === "write") sent = code.replace("$2", () => value).replaceAll("$4", order.fence ?? "$4");
  if (to === "commit" && isSoldOut) sent = `-- ${text("scheduler-code-sold-out")}`;
  else if (to === "commit" && order.before !== undefined) sent = `-- ${order.before} − 1 = ${value}`;
  let seen = "";
  if (isPassed && to === "read") seen = text("scheduler-saw", { value: order.before });
  if (isPassed && to === "held" && order.fence) seen = text("scheduler-fence", { value: order.fence });
  const modelled = kind === "lock" ? ` <small class="badge">${text("site-scheduler-modelled")}</small>` : "";
  const mark = isNext ? ' aria-current="step"' : "";
  return `<li class="${kind}${isNext ? " current" : isPassed ? " passed" : ""}"${mark}><div><pre>${sent}</pre>${modelled}</div>${seen && `<b class="observed">${seen}</b>`}</li>`;
}

function orderCard(of, order) {
  const holds = !order.result && order.passed.includes("held") && !order.passed.includes("release");
  const [kind, message] = order.hasLostLock ? ["lost", "scheduler-believes-lock"] : ["lock", "scheduler-has-lock"];
  const chip = of.hasLock && holds ? ` <span class="chip ${kind}">${text(message)}</span>` : "";
  let now;
  if (order.result) now = `<p class="result${order.result.kind === "sold" ? " sold" : ""}">${of.result(order.result)}</p>`;
  else if (order.isWaiting) now = `<p class="result waiting">${text("scheduler-waits-lock")}</p>`;
  else now = `<button class="main" id="step-${order.name}" type="button" data-who="${order.name}" aria-keyshortcuts="${order.name}"><kbd>${order.name}</kbd> ${text(of.next(order))}</button>`;
  const rejected = order.rejected ? `<p class="rejected">✗ ${order.rejected}</p>` : "";
  const code = of.level.segments.map((it, index) => segment(of, order, it, index)).join("");
  return `<article class="game-order" aria-labelledby="order-${order.name}"><h2 id="order-${order.name}">${text("scheduler-order", { order: order.name })}${chip}</h2>${now}${rejected}<ol class="code">${code}</ol></article>`;
}

function ledgerEntry(of, entry) {
  const isFork = of.entries.filter(({ version }) => version === entry.version).length > 1;
  const delta = entry.delta > 0 ? `+${entry.delta}` : `−${-entry.delta}`;
  const fence = entry.fence === null ? "" : ` · ${text("shop-ledger-fence", { fence: entry.fence })}`;
  const fork = isFork ? `<p class="violation"><span aria-hidden="true">◆</span> ${text("scheduler-fork")}</p>` : "";
  return `<li class="entry${isFork ? " forked" : ""}"><span class="seq">#${entry.seq}</span><span class="chain"><b>${entry.before}</b> <i>${delta}</i> <span class="to">→</span> <b>${entry.after}</b></span><span class="reason">${text(`shop-reason-${entry.reason}`)}</span><span class="fine">${text("shop-ledger-version", { version: entry.version })}${fence}</span>${fork}</li>`;
}

function heading(of) {
  if (of.reachedAt) return text("scheduler-reached", { steps: of.reachedAt });
  return of.isOver() ? text("scheduler-missed") : text("scheduler-steps", { steps: of.steps.length });
}

function show(of) {
  const { audit, level } = of;
  const focused = document.activeElement?.id;
  const stars = of.stars();
  const next = data.levels[data.levels.indexOf(level) + 1];
  const starLine = stars ? `<p class="stars" role="img" aria-label="${text("scheduler-stars", { stars })}">${"★".repeat(stars)}${"☆".repeat(3 - stars)}</p>` : "";
  const oversold = audit.oversold ? ` · <b class="off">${text("scheduler-oversold", { units: audit.oversold })}</b>` : "";
  const steps = of.steps.map(({ words }, at) => (at + 1 === of.reachedAt ? `<li class="reached">${words} <b>★ ${text("scheduler-goal")}</b></li>` : `<li>${words}</li>`));
  const fences = of.entries.some(({ fence }) => fence !== null) ? `<p class="hint">${text("scheduler-fences", { fences: FENCES_PER_GRANT })}</p>` : "";
  game.innerHTML = `<h2 class="level-title">${text(`scheduler-level-${level.name}-title`)}</h2>
<p>${text(`scheduler-level-${level.name}-goal`)}</p>
<section class="goal${of.reachedAt ? " reached" : ""}${audit.oversold ? " loss" : ""}" aria-labelledby="goal-title"><h2 id="goal-title">${heading(of)}</h2>${starLine}
<p class="books">${text("scheduler-books", { opening: of.stock, sold: audit.sold, stock: audit.stock })}${oversold}</p></section>
<section class="game-orders" aria-label="${text("scheduler-orders")}">${of.orders.map((order) => orderCard(of, order)).join("")}</section>
<div class="actions"><button id="undo" type="button" data-do="undo" aria-keyshortcuts="U"${of.steps.length ? "" : " disabled"}><kbd>U</kbd> ${text("scheduler-undo")}</button>
${of.hasLock && !of.isOver() ? `<button id="expire" type="button" data-who="X" aria-keyshortcuts="X"><kbd>X</kbd> ${text("scheduler-expire")}</button>` : ""}
<button id="again" type="button" data-play="${level.name}" aria-keyshortcuts="R"><kbd>R</kbd> ${text("scheduler-again")}</button>
${next ? `<button id="next" type="button" data-play="${next.name}"${of.reachedAt ? ' class="main"' : ""}>${text("scheduler-next-level")}</button>` : ""}</div>
<p class="hint keys">${text("scheduler-keys", { orders: level.orders, leases: of.hasLock ? "yes" : "no" })} ${text("site-scheduler-undo-about")}</p>
${steps.length ? `<section aria-labelledby="steps-title"><h2 id="steps-title">${text("scheduler-taken")}</h2><ol class="taken-steps">${steps.join("")}</ol></section>` : ""}
<section aria-labelledby="ledger-title"><h2 id="ledger-title">${text("scheduler-ledger")}</h2>${fences}<ol class="ledger">${of.entries.map((entry) => ledgerEntry(of, entry)).join("")}</ol></section>`;
  const target = element(focused);
  (target && !target.disabled ? target : game).focus({ preventScroll: true });
  if (of.steps.length) element("announce").textContent = `${of.steps.at(-1).words} ${heading(of)}`;
}

// ---- What the visitor does ----

let isBusy = false;
// Counts what was asked for: while Postgres loads, the visitor may ask for something else.
let asked = 0;

const broken = (error) => state(text("site-scheduler-broken", { why: error.message }));

// Acts in a game: one step at a time.
async function act(action) {
  if (isBusy) return;
  isBusy = true;
  game.setAttribute("aria-busy", "true");
  try {
    await action();
  } catch (error) {
    broken(error);
  } finally {
    isBusy = false;
    game.removeAttribute("aria-busy");
  }
}

// Begins a level and repeats steps in it; where Postgres can't be loaded, the recording plays. The
// level in the list, if it was begun there, says how far it is.
async function play(name, steps = [], card = null) {
  asked += 1;
  const turn = asked;
  recording.hidden = true;
  recording.replaceChildren();
  if (card) {
    // Steps in the game before would be lost.
    game.replaceChildren();
    card.append(element("state"));
  } else {
    recording.before(element("state"));
  }
  if (location.protocol === "file:" || typeof WebAssembly === "undefined") {
    state(text("site-scheduler-no-wasm"));
    return watch(name);
  }
  try {
    await postgres();
  } catch (error) {
    if (turn !== asked) return;
    state(text("site-scheduler-failed", { why: error.message }));
    return watch(name);
  }
  if (turn !== asked) return;
  if (card) state(text("site-scheduler-opening"), true);
  const next = new Game(data.levels.find((level) => level.name === name));
  await next.begin();
  for (const step of steps) await next.step(step);
  if (turn !== asked) return;
  state("");
  recording.before(element("state"));
  current = next;
  show(current);
  if (!steps.length) game.scrollIntoView();
}

// Plays the recorded game of a level, with a position for each of its steps; who wants no motion
// starts it, or goes from step to step.
async function watch(name) {
  asked += 1;
  const turn = asked;
  if (!window.recordedGames) await loadScript(game.dataset.recordings);
  if (turn !== asked) return;
  const states = window.recordedGames[name];
  const end = states.length - 1;
  game.replaceChildren();
  recording.before(element("state"));
  recording.hidden = false;
  sayLoaded?.();
  recording.innerHTML = `<h2 id="recording-title" tabindex="-1">${text("site-scheduler-recording")}</h2>
<div class="player"><div class="controls"><button type="button" id="playing"></button> <button type="button" id="previous">${text("site-scheduler-previous")}</button> <button type="button" id="forward">${text("site-scheduler-next")}</button>
<input type="range" id="moment" min="0" max="${end}" value="0" aria-label="${text("scheduler-taken")}"></div>
<p class="hint" id="moment-words" role="status"></p></div><div id="recorded"></div>`;
  const moment = element("moment");
  let timer = null;
  const show = (at) => {
    moment.value = at;
    const step = Number(moment.value);
    element("recorded").innerHTML = states[step].replace("<h1>", "<h2>").replace("</h1>", "</h2>");
    const words = element("recorded").querySelector(".taken-steps li:last-child")?.textContent ?? text("site-scheduler-moment-first");
    element("moment-words").textContent = text("site-scheduler-moment", { step, steps: end, words });
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    element("playing").textContent = text("site-scheduler-resume");
  };
  const run = () => {
    if (Number(moment.value) === end) show(0);
    element("playing").textContent = text("site-scheduler-pause");
    timer = setInterval(() => {
      if (turn !== asked) return clearInterval(timer);
      show(Number(moment.value) + 1);
      if (Number(moment.value) === end) pause();
    }, WATCH_MS);
  };
  const go = (by) => {
    pause();
    show(Number(moment.value) + by);
  };
  moment.addEventListener("input", () => go(0));
  element("previous").addEventListener("click", () => go(-1));
  element("forward").addEventListener("click", () => go(1));
  element("playing").addEventListener("click", () => (timer ? pause() : run()));
  show(0);
  if (calm.matches) pause();
  else run();
  element("recording-title").focus({ preventScroll: true });
  // With what is said above it, if anything is.
  (element("state").textContent ? element("state") : recording).scrollIntoView();
}

async function stepped(who) {
  const turn = asked;
  if ((await current.step(who)) && turn === asked) show(current);
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  const { play: level, watch: watched, who, do: what } = button?.dataset ?? {};
  if (level) play(level, [], button.closest(".level")).catch(broken);
  else if (watched) watch(watched).catch(broken);
  else if (who) act(() => stepped(who));
  else if (what === "undo") act(() => play(current.level.name, current.steps.slice(0, -1).map((step) => step.who)));
});
game.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
  const key = event.key.toLowerCase();
  const button = element({ u: "undo", x: "expire", r: "again" }[key] ?? `step-${key.toUpperCase()}`);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
});
