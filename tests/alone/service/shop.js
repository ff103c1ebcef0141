// The shop of shop.py with Express and pg, in three of its modes.
//
//   node shop.js schema    creates the tables
//   node shop.js PORT      serves
'use strict';

const express = require('express');
const { Pool } = require('pg');

const READ = 'select stock from products where id = $1';

// Every buyer may have a connection: the judge's gate needs all of them to wait in the database.
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 16 });
pool.on('error', () => {}); // an idle connection was cut: the pool has removed it
pool.on('connect', (db) => db.on('error', () => {})); // one in use: its statement fails for itself

// Returns the first column of the first row, or undefined.
async function value(db, statement, values) {
  const { rows } = await db.query({ text: statement, values, rowMode: 'array' });
  return rows[0]?.[0];
}

// Commits if `work` returned something, else rolls back. A connection with an error is closed.
async function transaction(work) {
  const db = await pool.connect();
  let failure;
  try {
    await db.query('begin');
    const result = await work(db);
    await db.query(result ? 'commit' : 'rollback');
    return result;
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    db.release(failure);
  }
}

// Returns the order that has this key.
const stored = (order) =>
  value(pool, 'select id from orders where idempotency_key = $1', [order.key]);

// Returns the new order, or undefined if another one has its key.
const insert = (db, order) =>
  value(
    db,
    `insert into orders (product_id, quantity, idempotency_key, buyer)
     values ($1, $2, $3, $4) on conflict do nothing returning id`,
    [order.product, order.quantity, order.key, order.buyer],
  );

// Writes what is left of the stock that was read, and the order.
async function sellFrom(stock, db, order) {
  if (stock < order.quantity) return undefined;
  const left = stock - order.quantity;
  await db.query('update products set stock = $1 where id = $2', [left, order.product]);
  return insert(db, order);
}

const MODES = {
  // Wrong: two orders read the same stock, and the second overwrites what the first wrote.
  'read-then-write': (order) =>
    transaction(async (db) => sellFrom(await value(db, READ, [order.product]), db, order)),

  // Wrong: the key was looked up before the lock only, and this mode has no unique index.
  'key-before': (order) =>
    transaction(async (db) =>
      sellFrom(await value(db, `${READ} for update`, [order.product]), db, order),
    ),

  // Right: one statement checks and subtracts, in one transaction with the order.
  conditional: (order) =>
    transaction(async (db) => {
      const taken = await db.query(
        'update products set stock = stock - $1 where id = $2 and stock >= $1',
        [order.quantity, order.product],
      );
      return taken.rowCount > 0 ? insert(db, order) : undefined;
    }),
};

const mode = process.env.MODE;
const sell = MODES[mode];
if (!sell) throw new Error(`no such MODE: ${mode}`);

async function createSchema() {
  const unique = mode === 'key-before' ? '' : 'unique';
  await pool.query(`
    create table products (id text primary key, stock int not null);
    create table orders (id bigserial primary key, product_id text not null references products,
      quantity int not null, idempotency_key text not null, buyer int not null);
    create ${unique} index on orders (idempotency_key)`);
  await pool.end();
}

function serve(port) {
  const app = express();
  app.use(express.json());

  app.get('/health', (_request, response) => response.json({ mode }));

  app.post('/orders', async (request, response) => {
    const order = { ...request.body, key: request.get('Idempotency-Key') };
    // Again after a refusal: another order of this key may have got the last unit meanwhile.
    const sold = (await stored(order)) ?? (await sell(order)) ?? (await stored(order));
    if (sold) response.status(201).json({ id: sold });
    else response.status(409).json({ error: 'sold out' });
  });

  const server = app.listen(port, '127.0.0.1');
  process.on('SIGTERM', () => {
    server.close(() => process.exit());
    server.closeIdleConnections(); // older versions of Node.js would wait for them
  });
}

if (process.argv[2] === 'schema') createSchema();
else serve(Number(process.argv[2]));
