// Makes an item, a copy of the variant that migrate.js imported, and prints its id:
// node item.js STOCK. By SQL, since Vendure takes seconds to start.
'use strict';

const { Client } = require('pg');

const COPY = `
  with template as (select * from product_variant order by id limit 1),
  item as (
    insert into product_variant (sku, "taxCategoryId", "productId")
    select 'ticket', "taxCategoryId", "productId" from template
    returning id
  ),
  name as (
    insert into product_variant_translation ("languageCode", name, "baseId")
    select t."languageCode", t.name, item.id
    from product_variant_translation t join template on template.id = t."baseId", item
  ),
  price as (
    insert into product_variant_price ("currencyCode", "channelId", price, "variantId")
    select p."currencyCode", p."channelId", p.price, item.id
    from product_variant_price p join template on template.id = p."variantId", item
  ),
  channel as (
    insert into product_variant_channels_channel ("productVariantId", "channelId")
    select item.id, c."channelId"
    from product_variant_channels_channel c
    join template on template.id = c."productVariantId", item
  ),
  stock as (
    insert into stock_level ("stockOnHand", "stockAllocated", "productVariantId", "stockLocationId")
    select $1, 0, item.id, s."stockLocationId"
    from stock_level s join template on template.id = s."productVariantId", item
  )
  select id from item`;

const main = async () => {
  const client = new Client(process.env.DATABASE_URL);
  await client.connect();
  const { rows } = await client.query(COPY, [Number(process.argv[2])]);
  await client.end();
  console.log(JSON.stringify({ item: String(rows[0].id) }));
};

main();
