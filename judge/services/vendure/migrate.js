// Makes the schema and what a shop needs before its first order; done once, it does nothing.
'use strict';

const path = require('node:path');
const { bootstrap } = require('@vendure/core');
const { populate } = require('@vendure/core/cli');
const { Client } = require('pg');
const config = require('./config.js');

const INITIAL_DATA = {
  defaultLanguage: 'en',
  defaultZone: 'Europe',
  countries: [{ name: 'Austria', code: 'AT', zone: 'Europe' }],
  taxRates: [{ name: 'Standard', percentage: 20 }],
  shippingMethods: [{ name: 'Post', price: 500 }],
  paymentMethods: [
    {
      name: 'Dummy',
      handler: {
        code: 'dummy-payment-handler',
        arguments: [{ name: 'automaticSettle', value: 'true' }],
      },
    },
  ],
  collections: [],
};

const isPopulated = async (client) => {
  const { rows } = await client.query(`select to_regclass('product_variant') as is_there`);
  if (!rows[0].is_there) return false;
  return (await client.query('select 1 from product_variant')).rows.length > 0;
};

const main = async () => {
  const client = new Client(process.env.DATABASE_URL);
  await client.connect();
  if (!(await isPopulated(client))) {
    const anyPort = config(0);
    anyPort.dbConnectionOptions.synchronize = true;
    const csv = path.join(__dirname, 'product.csv');
    const app = await populate(() => bootstrap(anyPort), INITIAL_DATA, csv);
    await app.close();
    // populate() only logs its errors.
    if (!(await isPopulated(client))) throw new Error('Vendure imported no product, see above');
  }
  process.exit(0); // Vendure's timers would keep it running
};

main();
