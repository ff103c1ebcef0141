'use strict';

const { default: advisoryLock } = require('advisory-lock');
const { serve } = require('../common/adapter.js');
const version = require('./package.json').dependencies['advisory-lock'];

serve(({ database_url }) => {
  const createMutex = advisoryLock(database_url);

  return {
    name: `advisory-lock ${version}`,
    fencing: false,
    renews: false,
    async acquire(key, waitMs) {
      const mutex = createMutex(key);
      if (!waitMs) return (await mutex.tryLock()) ?? null;
      // `lock` has no timeout: a lock that comes too late is given back.
      const locking = mutex.lock();
      const late = Symbol('late');
      let timer;
      const timeout = new Promise((resolve) => (timer = setTimeout(resolve, waitMs, late)));
      const unlock = await Promise.race([locking, timeout]);
      clearTimeout(timer);
      if (unlock !== late) return unlock;
      locking.then((unlock) => unlock()).catch(() => {});
      return null;
    },
    async release(unlock) {
      await unlock(); // returns nothing
      return true;
    },
  };
});
