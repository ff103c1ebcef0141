select clock_timestamp() as "now!", m.known as "known!",
       case when $4 then nextval('stock_ledger_seq_seq') end as seq,
       i.sku as "sku?: Sku", i.name as "name?", i.name_zh as "name_zh?",
       i.price_cents as "price_cents?", i.stock as "stock?",
       i.limit_per_user as "limit_per_user?", i.hidden as "hidden?",
       i.version as "version?", i.fence as "fence?",
       case when i.limit_per_user is not null then array(
           select (select coalesce(sum(quantity), 0)::bigint from (
                       select quantity from order_lines
                        where sku = i.sku and counts_for = b.user_id limit 2001) counted)
             from unnest($3::uuid[]) with ordinality as b (user_id, place)
            order by place) end as purchased
  from (select array(
            select k.place
              from unnest($2::uuid[]) with ordinality as k (id, place),
                   lateral (select from idempotency where id = k.id limit 1) as r
        ) as known) as m
  left join lateral (select * from items where sku = any($1) order by sku) as i on true
-- parameters: skus, keys, buyers, next_entry
