select seq, before, delta, after, version, reason, order_id as "order_id: OrderId", fence,
       request_id, at
  from stock_ledger
 where sku = $1 and seq < $2
 order by seq desc limit $3
-- parameters: sku, before, limit
