// Level 6: a fence from a sequence of Postgres.
'use strict';

const { randomUUID } = require('node:crypto');
const { ServerAway, postgres, redis, sleep } = require('./holdfast_course.js');

const RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";
const RENEW = `
return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2])`;
const renewals = new Map();

// A number above all earlier ones, from a store that does not forget. Who is overtaken on the way has a
// higher fence than the next holder, who is then refused: nothing is lost.
const newFence = async () => Number(await postgres("select nextval('fences')"));

exports.acquire = async (key, waitS, ttlMs) => {
  const token = randomUUID();
  const end = Date.now() + 1000 * waitS;
  while (!await redis('SET', key, token, 'NX', 'PX', ttlMs)) {
    if (Date.now() > end) return null;
    await sleep(0.01);
  }
  startRenewal(key, token, ttlMs);
  return [token, await newFence()];
};

exports.release = async (key, token) => {
  stopRenewal(token);
  return await redis('EVAL', RELEASE, 1, key, token) === 1;
};

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
