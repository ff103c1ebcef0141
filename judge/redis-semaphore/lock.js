'use strict';

const Redis = require('ioredis');
const { Mutex } = require('redis-semaphore');
const { serve } = require('../common/adapter.js');
const version = require('./package.json').dependencies['redis-semaphore'];

serve(({ redis_url, ttl_ms }) => {
  const client = new Redis(redis_url);
  client.on('error', () => {}); // each request fails for itself

  return {
    name: `redis-semaphore ${version} Mutex`,
    fencing: false,
    renews: true,
    async acquire(key, waitMs) {
      const limit = waitMs ? { acquireTimeout: waitMs } : { acquireAttemptsLimit: 1 };
      const mutex = new Mutex(client, key, {
        lockTimeout: ttl_ms,
        ...limit,
        onLockLost() {}, // by default it ends the process
      });
      return (await mutex.tryAcquire()) ? mutex : null;
    },
    async release(mutex) {
      const held = mutex.isAcquired;
      await mutex.release(); // does not return whether it was held
      return held;
    },
  };
});
