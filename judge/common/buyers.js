// The protocol of a buyer's program (docs/SERVICE.md, *The program of a buyer*) in JavaScript.
'use strict';

const readline = require('node:readline');
const { setTimeout } = require('node:timers/promises');

// Sends a request; again if nobody listens, as nothing was sent: an instance that was killed is
// back within seconds.
const send = async (url, request) => {
  for (;;) {
    try {
      return await fetch(url, request);
    } catch (error) {
      if (error.cause?.code !== 'ECONNREFUSED') throw error;
      await setTimeout(100);
    }
  }
};

const describe = (error) => {
  const cause = error.cause ? ` (${error.cause.code ?? error.cause.message})` : '';
  return `${error.message}${cause}`.slice(0, 300);
};

// Serves the requests of the judge, as many at once as it sends. Both functions resolve to the
// fields of the answer.
const serve = (prepare, order) => {
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', async (line) => {
    const request = JSON.parse(line);
    let fields;
    try {
      fields = await (request.op === 'prepare' ? prepare(request) : order(request));
    } catch (error) {
      fields = { error: describe(error) };
    }
    process.stdout.write(JSON.stringify({ id: request.id, ...fields }) + '\n');
  });
  input.on('close', () => process.exit(0));
};

module.exports = { send, serve };
