// Postgres (PGlite) of scheduler.js: its start computes for seconds, in which a page would not respond.
// Answers each message `{ id, name, values }`, a call, with `{ id, result }` or `{ id, error }`.

let db = null;

const CALLS = {
  start: async (module, files) => {
    const { PGlite } = await import(module);
    db = await PGlite.create(files);
  },
  exec: async (statements) => {
    await db.exec(statements);
  },
  query: async (statement, values) => (await db.query(statement, values)).rows,
};

addEventListener("message", async ({ data: { id, name, values } }) => {
  try {
    postMessage({ id, result: await CALLS[name](...values) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
});
