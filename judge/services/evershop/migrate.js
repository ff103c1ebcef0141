// Makes the schema and what a shop needs before its first order, in an empty database: a way to
// ship and a way to pay, which its administrator would enter.
'use strict';

const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { Client } = require('pg');

const SHOP = `
  with zone as (
    insert into shipping_zone (name) values ('Austria') returning shipping_zone_id id
  ),
  country as (insert into shipping_zone_country (zone_id, country) select id, 'AT' from zone),
  provider as (
    insert into shipping_zone_provider (zone_id, provider_code) select id, 'core' from zone
  ),
  method as (
    insert into core_shipping_method (uuid, name)
    values ('00000000-0000-4000-8000-000000000001', 'Post')
    returning core_shipping_method_id id
  ),
  rate as (
    insert into core_shipping_method_rate (method_id, zone_id, cost)
    select method.id, zone.id, 5 from method, zone
  )
  insert into setting (name, value) values ('codPaymentStatus', '1')`;

// A module of EverShop's own start, which does not export it.
const load = (file) =>
  import(pathToFileURL(path.join(process.env.NODE_PATH, '@evershop/evershop/dist/bin/lib', file)));

const main = async () => {
  const { getCoreModules } = await load('loadModules.js');
  const { migrate } = await load('bootstrap/migrate.js');
  await migrate(getCoreModules());

  const { DB_HOST: host, DB_PORT: port, DB_USER: user, DB_PASSWORD: password, DB_NAME: database } =
    process.env;
  const client = new Client({ host, port, user, password, database });
  await client.connect();
  await client.query(SHOP);
  await client.end();
  process.exit(0); // the pool of the migrations would keep it running
};

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
