// Makes the schema and what a shop needs before its first order, in an empty database.
'use strict';

const path = require('node:path');
const { bootstrap } = require('@vendure/core');
const { populate } = require('@vendure/core/cli');
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

const main = async () => {
  const anyPort = config(0);
  anyPort.dbConnectionOptions.synchronize = true;
  const csv = path.join(__dirname, 'product.csv');
  await populate(() => bootstrap(anyPort), INITIAL_DATA, csv);
  process.exit(0); // Vendure's timers would keep it running
};

main();
