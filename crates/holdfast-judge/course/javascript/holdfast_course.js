// What `holdfast course` brings for lock.js: a Redis, a Postgres, and the judge's protocol.
//
//   await redis('SET', key, token, 'NX', 'PX', 500)      the reply: string, number, array or null
//   await postgres("select nextval('fences')")           the first value of the first row: string or null
//   await sleep(seconds)                                 instead of setTimeout: a cancelled request ends here
//
// Every call may throw: ServerAway if the server is away, ServerError with the server's own words if it
// refuses a command, and Cancelled. Each call has a connection of its own, so one that waits delays no
// other. Start what goes on in the background by a timer (setInterval, setTimeout, setImmediate): then it
// is not part of the request, and not cancelled with it.
//
// There is a sequence `fences` in Postgres. For a library of your choice, HOLDFAST_REDIS_URL and
// HOLDFAST_DATABASE_URL in the environment are the addresses of both. What lock.js writes to stderr is
// shown with the check.
//
// You need not change this file.
'use strict';

const readline = require('node:readline');
const { AsyncLocalStorage } = require('node:async_hooks');

const LEVEL = Number(process.env.HOLDFAST_COURSE_LEVEL || 1);
const FENCE_LEVEL = 5;

class ServerAway extends Error {}
class ServerError extends Error {}
// The caller gave up. Thrown by the next call of this module in that request; catch it only to clean
// up, and throw it again.
class Cancelled extends Error {}

// ---------------------------------------------------------------- requests

// The call of `acquire` or `release` in which something runs.
const current = new AsyncLocalStorage();

class Request {
  constructor(id) {
    this.id = id;
    this.isCancelled = false;
    this.isAnswered = false;
    this.wake = null; // ends a sleep
  }

  cancel() {
    this.isCancelled = true;
    if (this.wake) this.wake();
  }

  check() {
    if (!this.isCancelled) return;
    // Once: what cleans up may use the servers.
    this.isCancelled = false;
    throw new Cancelled('the request was cancelled');
  }
}

function requestOf() {
  const request = current.getStore();
  // What goes on after the answer is nobody's request.
  return request && !request.isAnswered ? request : new Request();
}

for (const name of ['setInterval', 'setTimeout', 'setImmediate']) {
  const start = global[name];
  // As a thread of its own would be: a callback runs outside of the request that started it.
  const outside = (...timer) => current.exit(() => start(...timer));
  global[name] = Object.defineProperties(outside, Object.getOwnPropertyDescriptors(start));
}

async function sleep(seconds) {
  const request = requestOf();
  request.check();
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, Math.max(0, seconds) * 1000);
    request.wake = () => { clearTimeout(timer); resolve(); };
  });
  request.wake = null;
  request.check();
}

// ---------------------------------------------------------------- calls of servers

// Of each call in flight, what takes its reply.
const calls = new Map();
let lastCall = 0;

// Lets the judge's worker call a server, by a connection for this call alone.
async function callServer(call) {
  const request = requestOf();
  request.check();
  const number = ++lastCall;
  const reply = await new Promise((resolve) => {
    calls.set(number, resolve);
    write({ call: number, request: request.id, ...call });
  });
  if ('value' in reply) return reply.value;
  if ('error' in reply) throw new ServerError(reply.error);
  request.check();
  throw new ServerAway(reply.away);
}

function takeReply(message) {
  calls.get(message.call)(message);
  calls.delete(message.call);
}

const redis = (...words) => callServer({ op: 'redis', words: words.map(String) });
const postgres = (sql) => callServer({ op: 'postgres', sql });

module.exports = { Cancelled, ServerAway, ServerError, postgres, redis, sleep };

// ---------------------------------------------------------------- the judge's protocol

const output = process.stdout.write.bind(process.stdout);
const requests = new Map();
const leases = new Map();
let lock;
let ttlMs;

function write(message) {
  output(JSON.stringify(message) + '\n');
}

// Ends the check, and says why.
function stop(message) {
  require('node:fs').writeSync(2, `${message}\n`);
  process.exit(3);
}

// The line of lock.js from which an error comes.
function placeOf(error) {
  const line = /lock\.js:(\d+)/.exec((error && error.stack) || '');
  return line ? `lock.js, line ${line[1]}: ` : 'lock.js: ';
}

// Ends the check with an error of lock.js; of a missing module, says how to get it.
function fail(error) {
  const text = `${placeOf(error)}${error}`;
  if (!error || error.code !== 'MODULE_NOT_FOUND') stop(text);
  stop(`${text.split('\n')[0]}: npm install it here, or use redis and postgres of holdfast_course.js`);
}

const isOfServer = (error) => error instanceof ServerAway || error instanceof ServerError;

async function acquire(message, request) {
  const held = await lock.acquire(message.key, message.wait_ms / 1000, ttlMs);
  if (held === null || held === undefined || held === false) return { ok: false, reason: 'timeout' };
  let token = held;
  const fence = {};
  const isPair = Array.isArray(held) && held.length === 2 && Number.isSafeInteger(held[1]);
  // A lock of a later level is checked again: its fence does not matter here.
  if (LEVEL < FENCE_LEVEL && isPair) token = held[0];
  if (LEVEL >= FENCE_LEVEL) {
    if (!isPair) {
      stop(`acquire returned ${JSON.stringify(held)}. From level ${FENCE_LEVEL} on it returns an array: ` +
        'the token, and the fence, a whole number');
    }
    [token, fence.fence] = held;
  }
  const lease = `${process.pid}-${message.id}`;
  leases.set(lease, token);
  return { ok: true, lease, ...fence };
}

async function release(message) {
  const token = leases.get(message.lease);
  leases.delete(message.lease);
  const released = await lock.release(message.key, token);
  if (typeof released !== 'boolean') {
    stop(`release returned ${JSON.stringify(released)}. It returns true, or false if the lock was lost before`);
  }
  return released ? { ok: true } : { ok: false, reason: 'lost' };
}

async function serve(message) {
  const request = new Request(message.id);
  requests.set(message.id, request);
  let answer;
  try {
    const operation = message.op === 'acquire' ? acquire : release;
    answer = await current.run(request, () => operation(message));
  } catch (error) {
    if (error instanceof Cancelled) answer = { ok: false, reason: 'cancelled' };
    // A server that is away is no fault of the lock.
    else if (isOfServer(error)) answer = { ok: false, reason: 'error', detail: placeOf(error) + error.message };
    else fail(error);
  } finally {
    request.isAnswered = true;
    requests.delete(message.id);
  }
  write({ id: message.id, ...answer });
}

function cancel(message) {
  requests.get(message.request)?.cancel();
  // With this answer, the judge closes the connection on which the request waits.
  write({ id: message.id, ok: true });
}

function initialize(message) {
  process.env.HOLDFAST_REDIS_URL = message.redis_url;
  process.env.HOLDFAST_DATABASE_URL = message.database_url;
  ttlMs = message.ttl_ms;
  try {
    lock = require('./lock.js');
  } catch (error) {
    fail(error);
  }
  for (const name of ['acquire', 'release']) {
    if (typeof lock[name] !== 'function') stop(`lock.js exports no function ${name}`);
  }
  write({ id: message.id, ok: true, name: 'lock.js', fencing: LEVEL >= FENCE_LEVEL, renews: LEVEL >= 4,
    cancels: true });
}

function main() {
  // The judge reads answers from stdout.
  process.stdout.write = (text) => stop(`${placeOf(new Error())}it prints ` +
    `${JSON.stringify(String(text).trim())} to stdout, which belongs to the judge. Use console.error(…)`);
  process.on('unhandledRejection', (error) => {
    if (!isOfServer(error)) fail(error);
    console.error(`${placeOf(error)}in the background: ${error}`);
  });
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', (line) => {
    const message = JSON.parse(line);
    if (message.op === 'init') initialize(message);
    else if (message.op === 'reply') takeReply(message);
    else if (message.op === 'cancel') cancel(message);
    else serve(message);
  });
  input.on('close', () => process.exit(0));
}

if (require.main === module) main();
