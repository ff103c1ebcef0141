'use strict';

const { createClient } = require('redis');
const redisLock = require('redis-lock');
const { serve, within } = require('../common/adapter.js');
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
    acquire(key, waitMs) {
      // It repeats what fails.
      return within(waitMs, lock(key, ttl_ms), (done) => done());
    },
    async release(done) {
      return (await done()) === 1;
    },
  };
});
