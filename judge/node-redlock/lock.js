'use strict';

const Redis = require('ioredis');
const Redlock = require('redlock');
const { version } = require('redlock/package.json');
const { serve } = require('../common/adapter.js');

const RETRY_DELAY = 200; // the library's default

serve(({ redis_url, ttl_ms }) => {
  const client = new Redis(redis_url);
  client.on('error', () => {}); // each request fails for itself

  // Runs `action`; null for a lock that another client holds. An error of Redis is an event.
  const run = async (redlock, action) => {
    let clientError;
    redlock.removeAllListeners('clientError').on('clientError', (error) => (clientError = error));
    try {
      return await action();
    } catch (error) {
      if (clientError || !(error instanceof Redlock.LockError)) throw clientError ?? error;
      return null;
    }
  };

  return {
    name: `node-redlock ${version}`,
    fencing: false,
    renews: false,
    acquire(key, waitMs) {
      const redlock = new Redlock([client], { retryCount: Math.floor(waitMs / RETRY_DELAY) });
      return run(redlock, () => redlock.lock(key, ttl_ms));
    },
    async release(lock) {
      return (await run(lock.redlock, async () => (await lock.unlock(), true))) ?? false;
    },
  };
});
