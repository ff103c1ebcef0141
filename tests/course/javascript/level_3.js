// Level 3: only the owner deletes the key.
'use strict';

const { randomUUID } = require('node:crypto');
const { redis, sleep } = require('./holdfast_course.js');

const RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";

exports.acquire = async (key, waitS, ttlMs) => {
  const token = randomUUID();
  const end = Date.now() + 1000 * waitS;
  while (!await redis('SET', key, token, 'NX', 'PX', ttlMs)) {
    if (Date.now() > end) return null;
    await sleep(0.01);
  }
  return token;
};

exports.release = async (key, token) => await redis('EVAL', RELEASE, 1, key, token) === 1;
