// Level 4: a renewal in the background, while the holder works.
'use strict';

const { randomUUID } = require('node:crypto');
const { ServerAway, redis, sleep } = require('./holdfast_course.js');

const RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";
const RENEW = `
return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2])`;
const renewals = new Map();

exports.acquire = async (key, waitS, ttlMs) => {
  const token = randomUUID();
  const end = Date.now() + 1000 * waitS;
  while (!await redis('SET', key, token, 'NX', 'PX', ttlMs)) {
    if (Date.now() > end) return null;
    await sleep(0.01);
  }
  startRenewal(key, token, ttlMs);
  return token;
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
