// The buyers of `holdfast judge service`, by Vendure's Shop API. A shopper is a session with its
// cart, and tries again with it: Vendure knows no keys.
//
// With --allocated an order counts as sold only if a unit was allocated to it. The shop tells
// nobody: the database is asked.
'use strict';

const { send, serve } = require('../../common/buyers.js');

const ALLOCATED = `
  select 1 from "order" o
  join order_line l on l."orderId" = o.id
  join stock_movement m on m."orderLineId" = l.id and m.type = 'ALLOCATION'
  where o.code = $1 limit 1`;

const database = process.argv.includes('--allocated')
  ? new (require('pg').Pool)({ connectionString: process.env.DATABASE_URL })
  : null;

// Asks the shop in a session; resolves to the one field of the answer. The session keeps the token
// of its first answer.
const ask = async (session, query) => {
  const { base, token } = session;
  const response = await send(`${base}/shop-api`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(token && { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ query }),
  });
  const { data, errors } = await response.json();
  if (errors) throw new Error(errors[0].message);
  session.token ??= response.headers.get('vendure-auth-token');
  return Object.values(data)[0];
};

// Changes the session's order; resolves to the order, or to a refusal, which has an `errorCode`.
// `more` is asked about it, too.
const change = (session, call, more = '') =>
  ask(
    session,
    `mutation {
      ${call} { ... on Order { code state } ... on ErrorResult { errorCode message } ${more} }
    }`,
  );

const accept = (answer) => {
  if (answer.errorCode) throw new Error(`${answer.errorCode}: ${answer.message}`);
  return answer;
};

const fillCart = async (base, key, item) => {
  const session = { base };
  const id = JSON.stringify(item);
  const added = await change(session, `addItemToOrder(productVariantId: ${id}, quantity: 1)`);
  if (added.errorCode === 'INSUFFICIENT_STOCK_ERROR') return { soldOut: true };
  accept(added);

  const mail = JSON.stringify(`${key}@example.com`);
  const customer = `firstName: "A", lastName: "Buyer", emailAddress: ${mail}`;
  accept(await change(session, `setCustomerForOrder(input: { ${customer} })`));
  const address = 'streetLine1: "Ring 1", city: "Wien", postalCode: "1010", countryCode: "AT"';
  accept(await change(session, `setOrderShippingAddress(input: { ${address} })`));
  const [method] = await ask(session, '{ eligibleShippingMethods { id } }');
  accept(await change(session, `setOrderShippingMethod(shippingMethodId: ["${method.id}"])`));
  return { code: added.code, token: session.token };
};

const buyers = new Map();

const prepare = async ({ buyer, key, item, base }) => {
  buyers.set(buyer, await fillCart(base, key, item));
  return { ok: true };
};

// Resolves to the state of the order after both steps, or after the one that was refused.
const checkOut = async (session) => {
  const checked = await change(
    session,
    'transitionOrderToState(state: "ArrangingPayment")',
    '... on OrderStateTransitionError { fromState transitionError }',
  );
  if (checked.transitionError?.includes('insufficient stock')) return 'InsufficientStock';
  // Checked by an earlier attempt of this shopper, or not refused.
  if ((checked.state ?? checked.fromState) === 'ArrangingPayment') {
    const payment = 'addPaymentToOrder(input: { method: "dummy", metadata: {} })';
    const paid = await change(session, payment);
    if (paid.state) return paid.state;
  }
  // Refused: an earlier attempt may have paid.
  const order = await ask(session, `{ orderByCode(code: "${session.code}") { state } }`);
  return order?.state ?? 'Unknown';
};

const isAllocated = async (code) => (await database.query(ALLOCATED, [code])).rows.length > 0;

// At the instance that the request names: who tries again may be at another one.
const order = async ({ buyer, base }) => {
  const shopper = buyers.get(buyer);
  if (shopper.soldOut) return { answer: 'sold-out' };
  const state = await checkOut({ ...shopper, base });
  if (state === 'InsufficientStock') return { answer: 'sold-out' };
  if (state !== 'PaymentSettled') throw new Error(`the order is in the state ${state}`);
  const isSold = !database || (await isAllocated(shopper.code));
  return { answer: isSold ? 'sold' : 'sold-out' };
};

serve(prepare, order);
