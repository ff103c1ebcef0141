-- Running sums of each item: opening + restocked = sold + stock, at any moment.
--
-- Every page shows this equation. From the ledger and the order lines it would cost a pass over the
-- whole history; from these columns it costs a pass over the items.
--
-- Only increments are written, never values that were computed from a read: a lost update of
-- `stock` therefore still makes the equation false. The audit compares the sums with the ledger and
-- the order lines (`running-sums`).
alter table items
    -- The opening stock.
    add column opening   bigint not null default 0,
    -- Units added since without an order, less units removed.
    add column restocked bigint not null default 0,
    -- Units in pending and paid orders.
    add column sold      bigint not null default 0;

-- This scan under an exclusive lock is admissible because no release has the schema of 0107: there
-- is no long history, and no replica of a previous release, which would write no sums. A later
-- release would add nullable columns and let the new code write them, and then, when no old replica
-- runs, fill one item per transaction: lock its row, read its ledger, update its sums.
--
-- `stock` is not set, so the trigger does not raise the version.
update items i
   set opening = s.opening, restocked = s.restocked, sold = s.sold
  from (select sku,
               coalesce(sum(delta) filter (where reason = 'opening'), 0) as opening,
               coalesce(sum(delta) filter (where order_id is null and reason <> 'opening'), 0)
                   as restocked,
               coalesce(-sum(delta) filter (where order_id is not null), 0) as sold
          from stock_ledger group by sku) s
 where s.sku = i.sku;
