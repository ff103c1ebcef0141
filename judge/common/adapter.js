// The protocol of `holdfast judge` (docs/JUDGE.md) for locks in JavaScript.
//
// An adapter passes `serve` a function of the request `init`, and of a function `lost`, to be called
// with a lease, an object, that was lost: its client stops before its write. It returns (or resolves to):
//   name, fencing, renews
//   acquire(key, waitMs)   resolves to a lease, or to null after waitMs
//   release(lease)         resolves to false if the lock was lost
//   fence(lease)           with `fencing`
// A lock that only takes the work as a closure ends the work at its release:
//   acquire: (key) => new Promise((granted, failed) => {
//     const lease = {};
//     const released = new Promise((release) => (lease.release = release));
//     lease.ended = redlock.using([key], ttl_ms, async (signal) => {
//       signal.onabort = () => lost(lease);
//       granted(lease);
//       await released;
//     });
//     lease.ended.catch(failed);
//   })
//   async release(lease) { lease.release(); await lease.ended; return true; }
// where `using` fails with an error of its own for a lock that was lost or not granted: that is
// `false` and `null`, all other errors are errors.
// An exception is reported as "error": a backend that is away is not a lock that is busy.
'use strict';

const readline = require('node:readline');

const print = (message) => process.stdout.write(JSON.stringify(message) + '\n');
const answer = (request, fields) => print({ id: request.id, ...fields });

// Resolves as `locking`, of a library without a timeout, or to null after waitMs: a lock that comes
// too late is given back.
exports.within = async (waitMs, locking, giveBack) => {
  const late = Symbol('late');
  let timer;
  const timeout = new Promise((resolve) => (timer = setTimeout(resolve, waitMs, late)));
  const lease = await Promise.race([locking, timeout]);
  clearTimeout(timer);
  if (lease !== late) return lease;
  locking.then(giveBack).catch(() => {});
  return null;
};

exports.serve = (open) => {
  const leases = new Map();
  let locks;
  let next = 1;

  const lostEarly = new WeakSet(); // before its grant; one of a released lease means nothing

  const lost = (held) => {
    lostEarly.add(held);
    for (const [lease, other] of leases) if (other === held) print({ lost: lease });
  };

  const handle = {
    async init(request) {
      locks = await open(request, lost);
      const { name, fencing, renews } = locks;
      return { ok: true, name, fencing, renews };
    },
    async acquire({ key, wait_ms }) {
      const held = await locks.acquire(key, wait_ms);
      if (!held) return { ok: false, reason: wait_ms ? 'timeout' : 'busy' };
      const lease = `${process.pid}-${next++}`;
      return { ok: true, lease, held, ...(locks.fencing && { fence: locks.fence(held) }) };
    },
    async release({ lease }) {
      const held = leases.get(lease);
      leases.delete(lease);
      return (await locks.release(held)) ? { ok: true } : { ok: false, reason: 'lost' };
    },
  };

  const input = readline.createInterface({ input: process.stdin });
  input.on('line', async (line) => {
    const request = JSON.parse(line);
    try {
      const { held, ...fields } = await handle[request.op](request);
      answer(request, fields);
      if (!held) return;
      leases.set(fields.lease, held); // the judge knows no lease before its grant
      if (lostEarly.has(held)) print({ lost: fields.lease });
    } catch (error) {
      if (request.op === 'init') throw error;
      answer(request, { ok: false, reason: 'error', detail: String(error).slice(0, 300) });
    }
  });
  input.on('close', () => process.exit(0));
};
