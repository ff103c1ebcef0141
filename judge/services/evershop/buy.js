// The buyers of `holdfast judge service`, by EverShop's REST API, which its storefront calls. A
// shopper is a cart, and tries again with it: EverShop knows no keys.
//
// With --again a shopper who is told that the number of the order is taken sends it again, as one
// who sees a failure presses the button again; else it is an error.
'use strict';

const { send, serve } = require('../../common/buyers.js');

const ADDRESS = {
  full_name: 'A Buyer',
  address_1: 'Ring 1',
  city: 'Wien',
  province: 'AT-9',
  postcode: '1010',
  country: 'AT',
  telephone: '1',
};
// Of migrate.js.
const SHIPPING = { provider_code: 'core', method_code: '00000000-0000-4000-8000-000000000001' };

const IS_PATIENT = process.argv.includes('--again');

// Resolves to the answer's `data`, or to its `error`.
const post = async ({ base, address }, path, body) => {
  const response = await send(`${base}/api/carts${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-forwarded-for': address },
    body: JSON.stringify(body),
  });
  return response.json();
};

const accept = ({ data, error }) => {
  if (error) throw new Error(error.message);
  return data;
};

// EverShop limits the requests of an address: each shopper has its own, as seen by a proxy.
let shoppers = 0;
const nextAddress = () => {
  shoppers += 1;
  return `10.0.${shoppers >> 8}.${shoppers & 255}`;
};

const fillCart = async (base, key, item) => {
  const shopper = { base, address: nextAddress(), email: `${key}@example.com` };
  const made = await post(shopper, '', { items: [{ sku: item, qty: 1 }] });
  if (made.error?.message === 'This item is out of stock') return { soldOut: true };
  shopper.cart = accept(made).cartId;

  const cart = `/${shopper.cart}`;
  accept(await post(shopper, `${cart}/contacts`, { email: shopper.email }));
  accept(await post(shopper, `${cart}/addresses`, { type: 'shipping', address: ADDRESS }));
  accept(await post(shopper, `${cart}/addresses`, { type: 'billing', address: ADDRESS }));
  accept(await post(shopper, `${cart}/shippingMethods`, SHIPPING));
  accept(await post(shopper, `${cart}/paymentMethods`, { method_code: 'cod' }));
  return shopper;
};

const buyers = new Map();

const prepare = async ({ buyer, key, item, base }) => {
  buyers.set(buyer, await fillCart(base, key, item));
  return { ok: true };
};

// At the instance that the request names: who tries again may be at another one.
const order = async ({ buyer, base }) => {
  const shopper = buyers.get(buyer);
  if (shopper.soldOut) return { answer: 'sold-out' };
  const { cart, email } = shopper;
  const place = () =>
    post({ ...shopper, base }, `/${cart}/checkout`, { cart_id: cart, customer: { email } });
  let placed = await place();
  while (IS_PATIENT && placed.error?.message.includes('ORDER_NUMBER_UNIQUE')) {
    placed = await place();
  }
  // It does not say which: the cart had none when it was filled, and only the stock has changed.
  if (placed.error?.message.endsWith('Cart has errors')) return { answer: 'sold-out' };
  accept(placed);
  return { answer: 'sold' };
};

serve(prepare, order);
