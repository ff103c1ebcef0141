'use strict';

const { createClient } = require('redis');
const { lock, tryLock } = require('simple-redis-mutex');
const { serve } = require('../common/adapter.js');
const version = require('./package.json').dependencies['simple-redis-mutex'];

// `lock` does not handle the errors of its attempts, which would end the process.
process.on('unhandledRejection', (error) => console.error(String(error)));

serve(async ({ redis_url, ttl_ms }) => {
  const client = createClient({ url: redis_url });
  client.on('error', () => {}); // it reconnects
  await client.connect();

  return {
    name: `simple-redis-mutex ${version}`,
    fencing: true,
    renews: false,
    async acquire(key, waitMs) {
      if (!waitMs) {
        const [granted, release] = await tryLock(client, key, { timeout: ttl_ms });
        return granted ? release : null;
      }
      const options = { timeout: ttl_ms, failAfter: waitMs };
      try {
        return await lock(client, key, options);
      } catch (error) {
        if (String(error).includes('could not be acquired after')) return null;
        throw error;
      }
    },
    fence: (release) => release.fencingToken,
    async release(release) {
      await release(); // returns nothing
      return true;
    },
  };
});
