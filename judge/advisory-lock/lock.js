'use strict';

const { default: advisoryLock } = require('advisory-lock');
const { serve, within } = require('../common/adapter.js');
const version = require('./package.json').dependencies['advisory-lock'];

// The library has no handler for a connection that is cut: by default that ends the process.
process.on('uncaughtException', console.error);

serve(({ database_url }) => {
  const createMutex = advisoryLock(database_url);

  return {
    name: `advisory-lock ${version}`,
    fencing: false,
    renews: false,
    async acquire(key, waitMs) {
      const mutex = createMutex(key);
      if (!waitMs) return (await mutex.tryLock()) ?? null;
      return within(waitMs, mutex.lock(), (unlock) => unlock());
    },
    async release(unlock) {
      await unlock(); // returns nothing
      return true;
    },
  };
});
