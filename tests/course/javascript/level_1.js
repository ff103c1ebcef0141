// Level 1: one atomic command, without an expiry.
'use strict';

const { redis, sleep } = require('./holdfast_course.js');

exports.acquire = async (key, waitS) => {
  const end = Date.now() + 1000 * waitS;
  while (!await redis('SET', key, 'held', 'NX')) {
    if (Date.now() > end) return null;
    await sleep(0.01);
  }
  return 'held';
};

exports.release = async (key) => {
  await redis('DEL', key);
  return true;
};
