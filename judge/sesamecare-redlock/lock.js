'use strict';

const Redis = require('ioredis');
const { ExecutionError, Redlock, ResourceLockedError } = require('@sesamecare-oss/redlock');
const { serve } = require('../common/adapter.js');
const version = require('./package.json').dependencies['@sesamecare-oss/redlock'];

const RETRY_DELAY = 200; // the library's default

// Returns `fallback` if the lock is another client's; an error of Redis is thrown.
const run = async (action, fallback) => {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    for (const { votesAgainst } of await Promise.all(error.attempts)) {
      for (const why of votesAgainst.values()) {
        if (!(why instanceof ResourceLockedError)) throw why;
      }
    }
    return fallback;
  }
};

serve(({ redis_url, ttl_ms }) => {
  const client = new Redis(redis_url);
  client.on('error', () => {}); // each request fails for itself
  const redlock = new Redlock([client]);
  redlock.on('error', () => {});

  return {
    name: `@sesamecare-oss/redlock ${version}`,
    fencing: false,
    renews: false,
    acquire(key, waitMs) {
      const retryCount = Math.floor(waitMs / RETRY_DELAY);
      return run(() => redlock.acquire([key], ttl_ms, { retryCount }), null);
    },
    release(lock) {
      return run(async () => (await lock.release(), true), false);
    },
  };
});
