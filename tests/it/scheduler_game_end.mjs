// The end of the scheduler game that plays on PGlite, as the site's page has it, for
// tests/it/scheduler_game_ends.rs:
//
//   node tests/it/scheduler_game_end.mjs PGLITE
//
// The first line of its input has the catalogue and the shop's SQL. Each further one is an action in a
// game, and is answered by a line with the state after it.

import { webcrypto } from "node:crypto";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// A browser has it.
globalThis.crypto ??= webcrypto;
await import(new URL("../../static/scheduler-postgres.js", import.meta.url));
const { PostgresEnd } = globalThis.schedulerPostgres;

const { PGlite } = await import(pathToFileURL(`${process.argv[2]}/dist/index.js`));
const db = await PGlite.create();
const query = async (sql, values) => (await db.query(sql, values)).rows;
const games = new Map();

async function act(game, { level, who }) {
  if (level) {
    games.set(game, new PostgresEnd(catalogue, sql, query));
    return games.get(game).begin({ level });
  }
  return games.get(game).take(who === "X" ? "expire" : who);
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { catalogue, sql } = JSON.parse((await lines.next()).value);
for (const migration of sql.migrations) await db.exec(migration);

for await (const line of lines) {
  const { game, ...action } = JSON.parse(line);
  console.log(JSON.stringify(await act(game, action)));
}
