// Level 2: the key expires.
'use strict';

const { redis, sleep } = require('./holdfast_course.js');

exports.acquire = async (key, waitS, ttlMs) => {
  const end = Date.now() + 1000 * waitS;
  while (!await redis('SET', key, 'held', 'NX', 'PX', ttlMs)) {
    if (Date.now() > end) return null;
    await sleep(0.01);
  }
  return 'held';
};

exports.release = async (key) => {
  await redis('DEL', key);
  return true;
};
