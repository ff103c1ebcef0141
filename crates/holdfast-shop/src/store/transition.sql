with row_lock_timeout as materialized (
    select case when $1::text is not null
                then set_config('lock_timeout', $1, true) end),
locked_orders as materialized (
    select o.id
      from row_lock_timeout, unnest($3::uuid[], $4::text[]) as t (id, old_status)
      join orders o on o.id = t.id
     where o.status = t.old_status order by o.id for no key update of o),
locked_items as materialized (
    select i.sku
      from unnest($7::text[], $8::bigint[], $9::bigint[]) as g (sku, version, fence)
      join items i on i.sku = g.sku
     where (select count(*) from locked_orders) = cardinality($3)
       and (g.version is null or i.version = g.version)
       and (g.fence is null or i.fence <= g.fence)
     order by i.sku for no key update of i),
locked_accounts as materialized (
    select a.user_id
      from unnest($14::uuid[], $15::bigint[], $16::bigint[]) as g (id, version, fence)
      join accounts a on a.user_id = g.id
     where (select count(*) from locked_items) = cardinality($7)
       and (g.version is null or a.version = g.version)
       and (g.fence is null or a.fence <= g.fence)
     order by a.user_id for no key update of a),

guard as materialized (
    select (select count(*) from locked_accounts) = cardinality($14)
           and (select count(*) from locked_items) = cardinality($7)
           and (select count(*) from locked_orders) = cardinality($3) as holds),

updated_orders as (
    update orders o set status = t.new_status, paid_at = coalesce(t.paid_at, o.paid_at)
      from guard, unnest($3::uuid[], $5::text[], $6::timestamptz[])
                  as t (id, new_status, paid_at)
     where guard.holds and o.id = t.id),
updated_items as (
    update items i
       set stock = coalesce(r.stock, i.stock), version = i.version + r.increment,
           fence = coalesce(r.fence, i.fence), sold = i.sold + r.sold,
           restocked = i.restocked + r.restocked
      from guard, unnest($7::text[], $9::bigint[], $10::bigint[], $11::bigint[],
                         $12::bigint[], $13::bigint[])
                  as r (sku, fence, stock, increment, sold, restocked)
     where guard.holds and i.sku = r.sku and r.stock is not null),
updated_accounts as (
    update accounts a
       set balance_cents = r.cents, version = a.version + r.increment,
           fence = coalesce(r.fence, a.fence)
      from guard, unnest($14::uuid[], $16::bigint[], $17::bigint[], $18::bigint[])
                  as r (id, fence, cents, increment)
     where guard.holds and a.user_id = r.id and r.cents is not null),

inserted_stock_entries as (
    insert into stock_ledger (seq, sku, before, delta, after, version, fence, reason,
                              order_id, request_id, at)
    select coalesce(e.seq, nextval('stock_ledger_seq_seq')), e.sku, e.before, e.delta,
           e.before + e.delta, e.version, e.fence, e.reason, e.order_id, e.request_id,
           case when e.seq is null then clock_timestamp() else $2 end
      from guard,
           unnest($19::bigint[], $20::text[], $21::bigint[], $22::bigint[], $23::bigint[],
                  $24::bigint[], $25::text[], $26::uuid[], $27::uuid[]) with ordinality
           as e (seq, sku, before, delta, version, fence, reason, order_id, request_id,
                 place)
     where guard.holds order by e.place),
inserted_balance_entries as (
    insert into balance_ledger (seq, user_id, before, delta, after, version, fence,
                                reason, order_id, request_id, at)
    select coalesce(e.seq, nextval('balance_ledger_seq_seq')), e.user_id, e.before,
           e.delta, e.before + e.delta, e.version, e.fence, e.reason, e.order_id,
           e.request_id, case when e.seq is null then clock_timestamp() else $2 end
      from guard,
           unnest($28::bigint[], $29::uuid[], $30::bigint[], $31::bigint[], $32::bigint[],
                  $33::bigint[], $34::text[], $35::uuid[], $36::uuid[]) with ordinality
           as e (seq, user_id, before, delta, version, fence, reason, order_id,
                 request_id, place)
     where guard.holds order by e.place),
inserted_top_up as (
    insert into top_ups (id, user_id, token, amount_cents)
    select $37::uuid, $38::uuid, $39::text, $40::bigint from guard
     where guard.holds and $38 is not null),
inserted_log_entry as (
    insert into admin_log (admin, action, subject, before, after, request_id)
    select $41::uuid, $42, $43::text, $44::jsonb, $45::jsonb, $46::uuid from guard
     where guard.holds and $42::text is not null),
inserted_keys as (
    insert into idempotency (id, user_id, method, path, key, fingerprint, status, body)
    select k.* from guard,
           unnest($47::uuid[], $48::uuid[], $49::text[], $50::text[], $51::text[],
                  $52::bytea[], $53::smallint[], $54::bytea[])
           as k (id, user_id, method, path, key, fingerprint, status, body)
     where guard.holds order by k.id)

select holds as "holds!" from guard
-- parameters: row_lock_timeout, now,
--   order_ids, order_old_statuses, order_new_statuses, order_paid_at,
--   item_skus, item_versions, item_fences, item_stocks, item_increments, item_sold,
--   item_restocked,
--   account_ids, account_versions, account_fences, account_cents, account_increments,
--   stock_seqs, stock_skus, stock_befores, stock_deltas, stock_versions, stock_fences,
--   stock_reasons, stock_orders, stock_requests,
--   balance_seqs, balance_users, balance_befores, balance_deltas, balance_versions,
--   balance_fences, balance_reasons, balance_orders, balance_requests,
--   top_up_id, top_up_user, top_up_token, top_up_cents,
--   log_admin, log_action, log_subject, log_before, log_after, log_request,
--   record_ids, record_users, record_methods, record_paths, record_keys, record_fingerprints,
--   record_statuses, record_bodies
