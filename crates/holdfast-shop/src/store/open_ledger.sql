insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
values ($1, 0, $2::bigint, $2, 0, 'opening', $3)
-- parameters: sku, stock, request_id
