// A fair lock with five commands a grant.
//
// The lock is the key with the holder's token and a lease. Beside it lies a list with one element, the
// baton: who takes it may set the key. Redis serves those who wait in BLPOP in their order, so nobody asks
// twice. A baton can be lost, with its holder or with the data: a guard of each process lays down a new
// one when there is neither a baton nor a holder.
'use strict';

const { randomUUID } = require('node:crypto');
const { Cancelled, ServerAway, postgres, redis, sleep } = require('./holdfast_course.js');

// Who releases leaves the key to the next holder, for a moment: a baton that is lost on the way is
// replaced soon, and a second release of the same token changes nothing.
const RELEASE = `
local holder = redis.call('set', KEYS[1], 'passing', 'px', ARGV[2] / 4, 'get')
if holder == ARGV[1] then return redis.call('rpush', KEYS[2], 'baton') end
if holder then redis.call('set', KEYS[1], holder, 'px', ARGV[2]) else redis.call('del', KEYS[1]) end`;
const RENEW = `
return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2])`;
// With a key already: until the next holder has set its own, another guard would lay down a second one.
const REPLACE = `
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return end
redis.call('set', KEYS[1], 'passing', 'px', ARGV[1] / 4)
redis.call('rpush', KEYS[2], 'baton')`;
const renewals = new Map();
const leaseMs = new Map();
const baton = (key) => `${key}:baton`;

// A number above all earlier ones, from a store that does not forget. Who is overtaken on the way has a
// higher fence than the next holder, who is then refused: nothing is lost.
const newFence = async () => Number(await postgres("select nextval('fences')"));

exports.acquire = async (key, waitS, ttlMs) => {
  ensureGuard(key, ttlMs);
  if (await redis('BLPOP', baton(key), waitS) === null) return null;
  const token = randomUUID();
  try {
    await redis('SET', key, token, 'PX', ttlMs);
    startRenewal(key, token, ttlMs);
    return [token, await newFence()];
  } catch (error) {
    stopRenewal(token); // of a server that is away, the lease ends by itself
    if (error instanceof Cancelled) {
      // The baton is ours: it has to go on. SET may not have been sent.
      await redis('SET', key, token, 'PX', ttlMs);
      await giveBack(key, token);
    }
    throw error;
  }
};

exports.release = async (key, token) => {
  stopRenewal(token);
  try {
    return await giveBack(key, token);
  } catch (error) {
    if (error instanceof Cancelled) await giveBack(key, token);
    throw error;
  }
};

const giveBack = async (key, token) =>
  await redis('EVAL', RELEASE, 2, key, baton(key), token, leaseMs.get(key)) !== null;

function startRenewal(key, token, ttlMs) {
  renewals.set(token, setInterval(async () => {
    try {
      if (await redis('EVAL', RENEW, 1, key, token, ttlMs) !== 1) stopRenewal(token);
    } catch (error) {
      // Until the lease ends, the next one may succeed.
      if (!(error instanceof ServerAway)) throw error;
    }
  }, ttlMs / 3));
}

function stopRenewal(token) {
  clearInterval(renewals.get(token));
  renewals.delete(token);
}

function ensureGuard(key, ttlMs) {
  if (leaseMs.has(key)) return;
  leaseMs.set(key, ttlMs);
  setImmediate(guard, key, ttlMs); // not part of this request
}

async function guard(key, ttlMs) {
  for (;;) {
    try {
      if (await redis('EXISTS', key, baton(key)) === 0) {
        await redis('EVAL', REPLACE, 2, key, baton(key), ttlMs);
      }
    } catch {
      // A server that is away comes back.
    }
    await sleep(ttlMs / 4000);
  }
}
