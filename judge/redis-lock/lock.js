'use strict';

const { createClient } = require('redis');
const redisLock = require('redis-lock');
const { serve } = require('../common/adapter.js');
const version = require('./package.json').dependencies['redis-lock'];

serve(async ({ redis_url, ttl_ms }) => {
  const client = createClient({ url: redis_url });
  client.on('error', () => {}); // it reconnects
  await client.connect();
  const lock = redisLock(client);

  return {
    name: `redis-lock ${version}`,
    fencing: false,
    renews: false,
    async acquire(key, waitMs) {
      // `lock` has no timeout, and repeats what fails: one that comes too late is given back.
      const locking = lock(key, ttl_ms);
      const late = Symbol('late');
      let timer;
      const timeout = new Promise((resolve) => (timer = setTimeout(resolve, waitMs, late)));
      const done = await Promise.race([locking, timeout]);
      clearTimeout(timer);
      if (done !== late) return done;
      locking.then((done) => done()).catch(() => {});
      return null;
    },
    async release(done) {
      return (await done()) === 1;
    },
  };
});
