with row_lock_timeout as materialized (
    select case when $1::text is not null
                then set_config('lock_timeout', $1, true) end),
locked_items as materialized (
    select i.sku
      from row_lock_timeout,
           unnest($2::text[], $3::bigint[], $4::bigint[]) as g (sku, version, fence)
      join items i on i.sku = g.sku
     where (g.version is null or i.version = g.version)
       and (g.fence is null or i.fence <= g.fence)
     order by i.sku for no key update of i),
guard as materialized (select count(*) = cardinality($2) as holds from locked_items),

updated_items as (
    update items i
       set stock = r.stock, version = i.version + r.increment,
           fence = coalesce(r.fence, i.fence), sold = i.sold + r.sold
      from guard, unnest($2::text[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::bigint[])
                  as r (sku, fence, stock, increment, sold)
     where guard.holds and i.sku = r.sku and r.stock is not null),

new_orders as (
    select ($8::uuid[])[place] as id, ($9::uuid[])[place] as record_id,
           ($10::uuid[])[place] as user_id, ($11::bigint[])[place] as total_cents, token,
           ($13::timestamptz[])[place] as created_at,
           ($14::timestamptz[])[place] as expires_at, fingerprint, body
      from guard,
           unnest($12::text[], $15::bytea[], $16::bytea[]) with ordinality
           as o (token, fingerprint, body, place)
     where guard.holds),
inserted_orders as (
    insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
    select id, user_id, 'pending', total_cents, token, created_at, expires_at
      from new_orders),

new_lines as materialized (
    select nextval('stock_ledger_seq_seq') as seq, ($17::uuid[])[place] as order_id,
           ($18::uuid[])[place] as user_id, sku, ($20::bigint[])[place] as quantity,
           ($21::bigint[])[place] as price, ($22::bigint[])[place] as max_per_user, name,
           name_zh, ($25::bigint[])[place] as before, ($26::bigint[])[place] as version,
           ($27::bigint[])[place] as fence, ($28::uuid[])[place] as request_id
      from guard,
           unnest($19::text[], $23::text[], $24::text[]) with ordinality
           as l (sku, name, name_zh, place)
     where guard.holds order by place),
inserted_lines as (
    insert into order_lines (order_id, sku, quantity, unit_price_cents, name, name_zh,
                             counts_for, limit_per_user, entry_seq)
    select order_id, sku, quantity, price, name, name_zh, user_id, max_per_user, seq
      from new_lines),
inserted_entries as (
    insert into stock_ledger
        (seq, sku, before, delta, after, version, fence, reason, order_id, request_id)
    select seq, sku, before, -quantity, before - quantity, version, fence, 'order',
           order_id, request_id
      from new_lines),

inserted_keys as (
    insert into idempotency
        (id, user_id, method, path, key, fingerprint, status, body, order_id)
    select record_id, user_id, 'POST', $29, token, fingerprint, 201, body, id
      from new_orders order by record_id)

select holds as "holds!" from guard
-- parameters: row_lock_timeout,
--   item_skus, item_versions, item_fences, item_stocks, item_increments, item_sold,
--   order_ids, order_records, order_users, order_totals, order_tokens,
--   order_created_at, order_expiries, order_fingerprints, order_bodies,
--   line_orders, line_users, line_skus, line_quantities, line_prices, line_limits,
--   line_names, line_names_zh, line_befores, line_versions, line_fences, line_requests,
--   path
