'use strict';

const Redis = require('ioredis');
const { IoredisAdapter, LockAcquisitionError, createLock } = require('redlock-universal');
const { serve } = require('../common/adapter.js');
const version = require('./package.json').dependencies['redlock-universal'];

const RETRY_DELAY = 100; // the library's default

serve(({ redis_url, ttl_ms }) => {
  const client = new Redis(redis_url);
  client.on('error', () => {}); // each request fails for itself
  const adapter = new IoredisAdapter(client);

  return {
    name: `redlock-universal ${version}`,
    fencing: false,
    renews: false,
    async acquire(key, waitMs) {
      const retryAttempts = Math.floor(waitMs / RETRY_DELAY);
      const lock = createLock({ adapter, key, ttl: ttl_ms, retryAttempts });
      try {
        return { lock, handle: await lock.acquire() };
      } catch (error) {
        const isHeld = error.cause?.message.endsWith('is already held');
        if (error instanceof LockAcquisitionError && isHeld) return null;
        throw error;
      }
    },
    release({ lock, handle }) {
      return lock.release(handle);
    },
  };
});
