// The adapter of a lock for `holdfast judge`: put your own lock in place of this one.
//
//   npm install redis
//   holdfast judge -- node lock.js
'use strict';

const { randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { createClient } = require('redis');
const { serve } = require('./adapter.js');

const RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";

serve(async ({ redis_url, ttl_ms }) => {
  const client = createClient({ url: redis_url });
  client.on('error', () => {}); // it reconnects
  await client.connect();

  return {
    name: 'my lock',
    fencing: false,
    renews: false,

    async acquire(key, waitMs) {
      const lease = { key, owner: randomUUID() };
      const until = performance.now() + waitMs;
      while (!(await client.set(key, lease.owner, { NX: true, PX: ttl_ms }))) {
        if (performance.now() > until) return null;
        await sleep(10);
      }
      return lease;
    },

    async release({ key, owner }) {
      return Boolean(await client.eval(RELEASE, { keys: [key], arguments: [owner] }));
    },
  };
});

// A library that only offers `using(key, work)`, with the work as a closure, holds the lock until
// the work has ended. So the work waits for the release:
//
//   acquire: (key) =>
//     new Promise((granted, failed) => {
//       const lease = {};
//       const until = new Promise((release) => (lease.release = release));
//       lease.ended = redlock.using([key], ttl_ms, async (signal) => {
//         signal.onabort = () => lost(lease); // the second argument of the function above
//         granted(lease);
//         await until;
//       });
//       lease.ended.catch(failed);
//     }),
//   async release(lease) {
//     lease.release();
//     return lease.ended.then(() => true, () => false);
//   },
