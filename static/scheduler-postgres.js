// A game of the scheduler without a server: the statements of the shop on a Postgres in the browser
// (PGlite, in postgres-worker.js). One connection plays both orders: each statement commits itself,
// as in the shop's levels. The lock in Redis is modelled.
//
// Each action returns the state that the shop's server returns after the same steps
// (crates/holdfast-lab/src/scheduler_game/state.rs). Test: tests/it/scheduler_game_ends.rs.

const USER = "00000000-0000-4000-8000-000000000001";
const NAME = "The last units";
const PRICE_CENTS = 100;
const MAX_ENTRIES = 20;
const ENDED_LEASE = "X";
// Before which number of the ledger: all.
const NO_LIMIT = "9223372036854775807";

// A list of one value in Postgres' notation: the statements take many orders at a time.
const list = (value) => (value === null ? "{null}" : `{"${value}"}`);

// ---- The lock in Redis ----

class ModelledLock {
  constructor(fencesPerLease) {
    this.fencesPerLease = fencesPerLease;
    this.holder = null;
    this.fence = 0;
    this.lastReserved = 0;
  }

  // Redis grants the free lock, and reserves fences.
  grant(name) {
    this.holder = name;
    this.fence = this.lastReserved + 1;
    this.lastReserved += this.fencesPerLease;
  }

  // Within a server, the next order gets the lease and the next of its fences, without Redis.
  handOff(name) {
    this.holder = name;
    this.fence += 1;
  }

  end() {
    this.holder = null;
  }
}

// ---- A game ----

class PostgresGame {
  // `send` executes one of the shop's statements by its name.
  constructor(level, catalogue, send) {
    this.level = level;
    this.catalogue = catalogue;
    this.send = send;
    this.rules = catalogue.strategies[level.strategy];
    this.points = this.rules.stages.map((stage) => stage.at);
    this.isFenced = this.rules.guard === "version-and-fence";
    this.lock = new ModelledLock(catalogue.fences_per_lease);
    this.sku = `last-${crypto.randomUUID()}`;
    this.orders = ["A", "B", "C"].slice(0, level.orders).map((name) => ({
      name,
      at: "wait",
      reached: new Set(["wait"]),
      read: null,
      version: null,
      fence: null,
      hasLostLock: false,
      rejection: null,
      // Known before the order responds, if it is not sold.
      outcome: null,
      result: null,
    }));
    this.steps = [];
    this.reachedAt = null;
  }

  async begin() {
    const stock = this.level.orders - 1;
    await this.send("insert_item", {
      sku: this.sku,
      name: NAME,
      price_cents: PRICE_CENTS,
      stock,
      kind: "lab",
      limit_per_user: null,
      description: "",
      name_zh: null,
    });
    await this.send("open_ledger", { sku: this.sku, stock, request_id: crypto.randomUUID() });
    await this.examine();
    return this.state();
  }

  // Takes a step of an order, or ends the lease. Returns the state, which is as before if the order
  // is not paused.
  async take(who) {
    if (who === ENDED_LEASE) {
      this.endLease();
    } else {
      const order = this.orders.find(({ name }) => name === who);
      if (!order?.at) return this.state();
      await this.resume(order);
    }

    const waiting = this.waiting();
    if (waiting && !this.lock.holder) {
      this.lock.grant(waiting.name);
      this.hold(waiting);
    }

    await this.examine();
    if (this.reachedAt === null && this.isReached()) this.reachedAt = this.steps.length;
    return this.state();
  }

  // Who has the lock is not told.
  endLease() {
    for (const order of this.orders) order.hasLostLock ||= this.believesItHasLock(order);
    this.lock.end();
    this.record({ who: ENDED_LEASE });
  }

  async resume(order) {
    const from = order.at;
    const seen = await this.advance(order);
    const did = this.action(from, order.read);
    this.record({ who: order.name, did, result: order.result, ...seen });
  }

  record(step) {
    this.steps.push({ did: null, saw: null, waits_for: null, rejection: null, result: null, ...step });
  }

  // Moves an order to its next point; returns what the step shows of it.
  async advance(order) {
    const to = this.points[this.points.indexOf(order.at) + 1];
    switch (to) {
      case "held":
        return this.acquire(order);
      case "read":
        return this.read(order);
      case "commit":
        // Nothing is left, so that it writes nothing.
        if (order.read < 1) return this.leave(order, { kind: "sold-out" });
        break;
      case "write":
        if (!(await this.write(order))) return this.reject(order);
        break;
      case "release":
        this.release(order);
        break;
      case undefined:
        order.at = null;
        order.result = order.outcome ?? { kind: "sold", before: order.read, after: order.read - 1 };
        return {};
      default:
    }
    this.move(order, to);
    return {};
  }

  move(order, to) {
    order.at = to;
    order.reached.add(to);
  }

  acquire(order) {
    if (this.lock.holder) {
      order.at = null;
      return { waits_for: "lock" };
    }
    this.lock.grant(order.name);
    this.hold(order);
    return {};
  }

  hold(order) {
    order.fence = this.isFenced ? this.lock.fence : null;
    this.move(order, "held");
  }

  release(order) {
    if (this.lock.holder !== order.name) return;
    const waiting = this.waiting();
    if (waiting && this.isFenced) {
      this.lock.handOff(waiting.name);
      this.hold(waiting);
    } else {
      this.lock.end();
    }
  }

  // Ends without a write.
  leave(order, outcome) {
    this.release(order);
    this.move(order, "release");
    order.outcome = outcome;
    return {};
  }

  async read(order) {
    const [row] = await this.send("read_items", {
      skus: list(this.sku),
      keys: "{}",
      buyers: list(USER),
      next_entry: false,
    });
    // A later holder has written: this one has lost its lock.
    if (this.isFenced && row.fence > order.fence) return this.leave(order, { kind: "stale" });

    order.read = row.stock;
    order.version = row.version;
    // What precedes a write begins again.
    order.reached.delete("commit");
    this.move(order, "read");
    return { saw: order.read };
  }

  // Sends the statement that places an order, with the guards of the level's strategy. Returns
  // whether the row was as they require.
  async write(order) {
    const id = crypto.randomUUID();
    const now = new Date().toISOString();
    const emptyBytes = list("\\\\x00");
    const fence = list(order.fence);
    const [{ holds }] = await this.send("place", {
      item_skus: list(this.sku),
      item_versions: list(this.rules.guard === "none" ? null : order.version),
      item_fences: fence,
      item_stocks: list(order.read - 1),
      item_increments: list(1),
      item_sold: list(1),
      order_ids: list(id),
      order_users: list(USER),
      order_totals: list(PRICE_CENTS),
      order_tokens: list(id),
      order_expiries: list(now),
      order_fingerprints: emptyBytes,
      order_bodies: emptyBytes,
      order_created_at: list(now),
      order_records: list(crypto.randomUUID()),
      line_orders: list(id),
      line_users: list(USER),
      line_skus: list(this.sku),
      line_quantities: list(1),
      line_prices: list(PRICE_CENTS),
      line_limits: list(null),
      line_befores: list(order.read),
      line_versions: list(order.version),
      line_fences: fence,
      line_requests: list(crypto.randomUUID()),
      line_names: list(NAME),
      line_names_zh: list(null),
      path: "/api/orders",
      row_lock_timeout: null,
    });
    return holds;
  }

  // The row has another version than the one that was read: the order reads again, as in the shop.
  async reject(order) {
    await this.examine();
    const [{ version, fence }] = this.entries;
    // The entry has the version that was read, and each write raises it.
    order.rejection = { version: version + 1, fence };
    return { rejection: order.rejection, ...(await this.read(order)) };
  }

  // Reads the books of the item.
  async examine() {
    const entries = await this.send("latest_stock_entries", {
      sku: this.sku,
      before: NO_LIMIT,
      limit: MAX_ENTRIES,
    });
    this.entries = entries.map(({ seq, before, delta, after, version, fence, reason }) => ({
      seq, before, delta, after, version, fence, reason,
    }));
    [this.audit] = await this.send("summary", { sku: this.sku, limit: 5 * MAX_ENTRIES });
  }

  waiting() {
    return this.orders.find((order) => !order.at && !order.result);
  }

  believesItHasLock({ reached, result }) {
    return !result && reached.has("held") && !reached.has("release");
  }

  // Names what an order does next at a point, where it has last read this.
  action(at, read) {
    if (at === "read" && read < 1) return "sold-out";
    return this.rules.stages[this.points.indexOf(at)].next;
  }

  isReached() {
    const { audit } = this;
    const unaccounted = audit.opening + audit.restocked - audit.sold - audit.stock;
    const isSound = [unaccounted, audit.drift, audit.breaks, audit.forks].every((count) => count === 0);
    const isSoldOnce = isSound && audit.sold === 1;
    const rejected = this.orders.filter((order) => order.rejection);
    switch (this.level.goal) {
      case "oversold":
        return audit.oversold > 0;
      case "conflict":
        return isSoldOnce && rejected.length > 0;
      case "stale-write":
        return isSoldOnce && rejected.some((order) => order.result?.kind === "stale");
      default:
        throw new Error(`no such goal: ${this.level.goal}`);
    }
  }

  stars() {
    if (this.reachedAt === null) return 0;
    const more = this.reachedAt - this.level.solution.length;
    if (more <= 0) return 3;
    return more <= this.catalogue.two_stars_within ? 2 : 1;
  }

  state() {
    return {
      level: this.level.name,
      strategy: this.level.strategy,
      orders: this.orders.map((order) => this.orderState(order)),
      steps: [...this.steps],
      entries: this.entries,
      audit: this.audit,
      reached_at: this.reachedAt,
      stars: this.stars(),
    };
  }

  orderState(order) {
    const { name, at, reached, read, fence, rejection, result } = order;
    const belief = order.hasLostLock ? "lost" : "held";
    return {
      name,
      at,
      reached: this.points.filter((point) => reached.has(point)),
      read,
      fence,
      lock: this.believesItHasLock(order) ? belief : null,
      next: at && this.action(at, read),
      waits_for: at || result ? null : "lock",
      rejection,
      result,
    };
  }
}

// ---- What the page calls ----

// Plays one game at a time. `query` executes a statement with the values of its parameters, and
// returns its rows; `sql` has the shop's statements.
class PostgresEnd {
  constructor(catalogue, sql, query) {
    this.catalogue = catalogue;
    this.sql = sql;
    this.query = query;
    this.game = null;
  }

  begin({ level }) {
    this.game = this.newGame(this.catalogue.levels.find(({ name }) => name === level));
    return this.game.begin();
  }

  // Takes a step of an order, ends the lease with `expire`, or takes a step back with `undo`.
  take(who) {
    if (who === "undo") return this.undo();
    return this.game.take(who === "expire" ? ENDED_LEASE : who);
  }

  // A committed statement cannot be undone: repeats all steps but the last with a new item.
  async undo() {
    const { level, steps } = this.game;
    const again = this.newGame(level);
    this.game = again;
    await again.begin();
    for (const { who } of steps.slice(0, -1)) await again.take(who);
    return again.state();
  }

  newGame(level) {
    return new PostgresGame(level, this.catalogue, (name, values) => this.send(name, values));
  }

  async send(name, values) {
    const { sql, parameters } = this.sql.statements[name];
    const missing = parameters.find((parameter) => !(parameter in values));
    if (missing) throw new Error(`${name}: no ${missing}`);

    const rows = await this.query(sql, parameters.map((parameter) => values[parameter]));
    // The shop's columns are annotated for sqlx: `stock?`, `sku?: Sku`.
    const plain = ([column, value]) => [column.replace(/[!?:].*$/, ""), value];
    return rows.map((row) => Object.fromEntries(Object.entries(row).map(plain)));
  }
}

// ---- Loading Postgres ----

const PGLITE_FILES = ["pglite.data", "pglite.wasm", "initdb.wasm"];

// Calls functions of postgres-worker.js.
class PostgresWorker {
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
    // Its file is missing or not allowed, or it has ended.
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.failure = Object.assign(new Error(event.message || script), { isFatal: true });
      for (const { reject } of this.calls.values()) reject(this.failure);
      this.calls.clear();
      this.end();
    });
  }

  call(name, ...values) {
    if (this.failure) return Promise.reject(this.failure);
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

// Starts a Postgres with the shop's tables, from the files in the folder `assets`, and returns the
// end that plays on it. `say` is called with a message and its values as it goes on.
async function load({ assets, bytes, catalogue, say, loadScript }) {
  const [fsBundle, pgliteWasm, initdbWasm] = await download(`${assets}pglite/`, bytes, say);
  const compile = async (file) => WebAssembly.compile(await file.arrayBuffer());
  const [pgliteWasmModule, initdbWasmModule] = await Promise.all([compile(pgliteWasm), compile(initdbWasm)]);
  await loadScript(`${assets}shop-sql.js`);

  say("site-scheduler-starting", {});
  const worker = new PostgresWorker(`${assets}postgres-worker.js`);
  try {
    await worker.call("start", `${assets}pglite/index.js`, { fsBundle, pgliteWasmModule, initdbWasmModule });
    const { migrations } = globalThis.shopSql;
    for (const [done, migration] of migrations.entries()) {
      say("site-scheduler-tables", { done, all: migrations.length });
      await worker.call("exec", migration);
    }
  } catch (error) {
    worker.end();
    throw error;
  }
  return new PostgresEnd(catalogue, globalThis.shopSql, (sql, values) => worker.call("query", sql, values));
}

// Loads PGlite's files, and says how much of them is here. PGlite, which can load them too, waits
// for ever if one of them is missing or not allowed.
async function download(folder, bytes, say) {
  const total = PGLITE_FILES.reduce((sum, name) => sum + bytes[name], 0);
  const stop = new AbortController();
  let loaded = 0;
  let said = -1;

  const sayLoaded = () => {
    // Not each part: a screen reader says what changes here.
    const tenth = Math.floor((loaded / total) * 10);
    if (tenth === said) return;
    said = tenth;
    const here = Math.round((tenth * total) / 1e7);
    say("site-scheduler-loading", { loaded: here, total: Math.round(total / 1e6) });
  };

  const load = async (name) => {
    const response = await fetch(folder + name, { signal: stop.signal });
    if (!response.ok) throw new Error(`${name}: ${response.status}`);
    const parts = [];
    let length = 0;
    for await (const part of chunks(response.body)) {
      parts.push(part);
      length += part.length;
      loaded += part.length;
      sayLoaded();
    }
    if (length !== bytes[name]) throw new Error(`${name}: ${length} / ${bytes[name]}`);
    return new Blob(parts);
  };

  sayLoaded();
  try {
    return await Promise.all(PGLITE_FILES.map(load));
  } catch (error) {
    stop.abort();
    throw error;
  }
}

// Of a stream, which not every browser can iterate over.
async function* chunks(stream) {
  const reader = stream.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) yield value;
}

// Scripts of the site are no modules, which a page from the file system cannot load.
globalThis.schedulerPostgres = { PostgresEnd, load };
