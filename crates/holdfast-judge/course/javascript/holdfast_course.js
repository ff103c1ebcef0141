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

const crypto = require('node:crypto');
const net = require('node:net');
const path = require('node:path');
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
  constructor() {
    this.isCancelled = false;
    this.isAnswered = false;
    this.wake = null; // ends what the request waits for
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

// ---------------------------------------------------------------- servers

// A connection that reads exactly what it is asked for.
class Connection {
  constructor(url) {
    this.url = url;
    this.buffer = Buffer.alloc(0);
    this.error = null;
    this.waiting = null;
  }

  async open() {
    this.socket = net.connect({ host: this.url.hostname, port: Number(this.url.port), noDelay: true });
    const fail = (error) => {
      this.error = error;
      if (this.waiting) this.waiting.reject(error);
      this.waiting = null;
    };
    this.socket.on('data', (data) => {
      this.buffer = Buffer.concat([this.buffer, data]);
      if (this.waiting) this.waiting.resolve();
      this.waiting = null;
    });
    this.socket.on('error', (error) => fail(new ServerAway(error.message)));
    this.socket.on('close', () => fail(new ServerAway('the server closed the connection')));
    await this.authenticate();
    return this;
  }

  async more() {
    if (this.error) throw this.error;
    await new Promise((resolve, reject) => { this.waiting = { resolve, reject }; });
  }

  async read(length) {
    while (this.buffer.length < length) await this.more();
    const data = this.buffer.subarray(0, length);
    this.buffer = this.buffer.subarray(length);
    return data;
  }

  async readLine() {
    let end;
    while ((end = this.buffer.indexOf('\r\n')) < 0) await this.more();
    const line = this.buffer.subarray(0, end).toString();
    this.buffer = this.buffer.subarray(end + 2);
    return line;
  }
}

class RedisConnection extends Connection {
  authenticate() {
    return this.call('AUTH', decodeURIComponent(this.url.password));
  }

  async call(...words) {
    const parts = words.map((word) => Buffer.from(String(word)));
    const bulks = parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from('\r\n')]);
    this.socket.write(Buffer.concat([Buffer.from(`*${parts.length}\r\n`), ...bulks]));
    const reply = await this.reply();
    if (reply instanceof Error) throw reply;
    return reply;
  }

  async reply() {
    const line = await this.readLine();
    const rest = line.slice(1);
    switch (line[0]) {
      case '-': return new ServerError(rest);
      case ':': return Number(rest);
      case '+': return rest;
      case '$': {
        if (Number(rest) < 0) return null;
        return (await this.read(Number(rest) + 2)).subarray(0, -2).toString();
      }
      default: {
        if (Number(rest) < 0) return null;
        const replies = [];
        for (let i = 0; i < Number(rest); i++) replies.push(await this.reply());
        return replies;
      }
    }
  }
}

// The simple query protocol, with a password by SCRAM-SHA-256.
class PostgresConnection extends Connection {
  send(kind, body) {
    const length = Buffer.alloc(4);
    length.writeInt32BE(body.length + 4);
    this.socket.write(Buffer.concat([Buffer.from(kind), length, body]));
  }

  async receive() {
    const head = await this.read(5);
    const kind = String.fromCharCode(head[0]);
    const body = await this.read(head.readInt32BE(1) - 4);
    if (kind !== 'E') return { kind, body };
    const message = body.toString().split('\0').find((field) => field[0] === 'M');
    return { kind, body, error: new ServerError(message ? message.slice(1) : 'an error') };
  }

  async expect(code) {
    const { kind, body, error } = await this.receive();
    if (error) throw error;
    if (kind !== 'R' || body.readInt32BE(0) !== code) throw new ServerAway('Postgres did not let us in');
    return body.subarray(4).toString();
  }

  async authenticate() {
    const fields = ['user', this.url.username, 'database', this.url.pathname.slice(1), '', ''];
    const start = Buffer.alloc(4);
    start.writeInt32BE(196608);
    this.send('', Buffer.concat([start, Buffer.from(fields.join('\0'))]));

    const first = `n=,r=${crypto.randomBytes(18).toString('base64')}`;
    await this.expect(10);
    const message = Buffer.from(`n,,${first}`);
    const length = Buffer.alloc(4);
    length.writeInt32BE(message.length);
    this.send('p', Buffer.concat([Buffer.from('SCRAM-SHA-256\0'), length, message]));

    const challenge = await this.expect(11);
    const given = Object.fromEntries(challenge.split(',').map((part) => [part[0], part.slice(2)]));
    const hmac = (key, text) => crypto.createHmac('sha256', key).update(text).digest();
    const password = decodeURIComponent(this.url.password);
    const salt = Buffer.from(given.s, 'base64');
    const key = crypto.pbkdf2Sync(password, salt, Number(given.i), 32, 'sha256');
    const client = hmac(key, 'Client Key');
    const stored = crypto.createHash('sha256').update(client).digest();
    const last = `c=biws,r=${given.r}`;
    const signature = hmac(stored, `${first},${challenge},${last}`);
    const proof = Buffer.from(client.map((byte, at) => byte ^ signature[at])).toString('base64');
    this.send('p', Buffer.from(`${last},p=${proof}`));
    await this.expect(12);
    await this.expect(0);
    while ((await this.receive()).kind !== 'Z');
  }

  async call(sql) {
    this.send('Q', Buffer.from(`${sql}\0`));
    let value = null;
    let failure = null;
    let hasRow = false;
    for (;;) {
      const { kind, body, error } = await this.receive();
      if (error) failure = error;
      if (kind === 'D' && !hasRow) {
        hasRow = true;
        const length = body.readInt32BE(2);
        value = length < 0 ? null : body.subarray(6, 6 + length).toString();
      }
      if (kind !== 'Z') continue;
      if (failure) throw failure;
      return value;
    }
  }
}

class Server {
  constructor(open) {
    this.open = open;
    this.idle = [];
  }

  async call(...words) {
    const request = requestOf();
    request.check();
    const connection = this.idle.pop() || await this.open();
    // Its reply is not waited for.
    request.wake = () => connection.socket.destroy();
    try {
      const reply = await connection.call(...words);
      this.idle.push(connection);
      return reply;
    } catch (error) {
      if (error instanceof ServerError) {
        this.idle.push(connection);
        throw error;
      }
      connection.socket.destroy();
      request.check();
      // After a failure the other idle connections are of the same server.
      this.idle.splice(0).forEach((other) => other.socket.destroy());
      throw error;
    } finally {
      request.wake = null;
    }
  }
}

const servers = {};
const redis = (...words) => servers.redis.call(...words);
const postgres = (sql) => servers.postgres.call(sql);

module.exports = { Cancelled, ServerAway, ServerError, postgres, redis, sleep };

// ---------------------------------------------------------------- the judge's protocol

const output = process.stdout.write.bind(process.stdout);
const requests = new Map();
const leases = new Map();
let lock;
let ttlMs;

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
  const request = new Request();
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
  output(JSON.stringify({ id: message.id, ...answer }) + '\n');
}

function cancel(message) {
  requests.get(message.request)?.cancel();
  output(JSON.stringify({ id: message.id, ok: true }) + '\n');
}

function setUp(redisAddress, databaseAddress) {
  const redisUrl = new URL(redisAddress);
  const postgresUrl = new URL(databaseAddress);
  servers.redis = new Server(() => new RedisConnection(redisUrl).open());
  servers.postgres = new Server(() => new PostgresConnection(postgresUrl).open());
  process.env.HOLDFAST_REDIS_URL = redisAddress;
  process.env.HOLDFAST_DATABASE_URL = databaseAddress;
}

function load() {
  try {
    lock = require('./lock.js');
  } catch (error) {
    fail(error);
  }
  for (const name of ['acquire', 'release']) {
    if (typeof lock[name] !== 'function') stop(`lock.js exports no function ${name}`);
  }
}

async function initialize(message) {
  setUp(message.redis_url, message.database_url);
  ttlMs = message.ttl_ms;
  load();
  try {
    if (lock.ready) await lock.ready();
  } catch (error) {
    fail(error);
  }
  output(JSON.stringify({ id: message.id, ok: true, name: 'lock.js', fencing: LEVEL >= FENCE_LEVEL,
    renews: LEVEL >= 4, cancels: true }) + '\n');
}

function main() {
  // The judge reads answers from stdout.
  process.stdout.write = (text) => stop(`${placeOf(new Error())}it prints ` +
    `${JSON.stringify(String(text).trim())} to stdout, which belongs to the judge. Use console.error(…)`);
  process.on('unhandledRejection', (error) => {
    if (!isOfServer(error)) fail(error);
    console.error(`${placeOf(error)}in the background: ${error}`);
  });
  if (process.argv[2] === '--check') {
    // Before there are servers: at this port is none.
    setUp('redis://:x@127.0.0.1:1/0', 'postgres://x:x@127.0.0.1:1/x');
    load();
    process.exit(0);
  }
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', (line) => {
    const message = JSON.parse(line);
    if (message.op === 'init') initialize(message);
    else if (message.op === 'cancel') cancel(message);
    else serve(message);
  });
  input.on('close', () => process.exit(0));
}

if (require.main === module) main();
