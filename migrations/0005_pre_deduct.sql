-- Lines of orders that were placed under the strategy `pre-deduct`, and whose ledger entries are still
-- to be written: the units left the counter in Redis, and have not left the item's row yet. The
-- statement that inserts the order inserts them; the settlement deletes them, in the transaction that
-- writes the entries and the row. Lab items only.
--
-- A table of its own, and no column of `order_lines`: the settlement finds what is left by the primary
-- key, and other orders do not pay for an index. Until it is settled, `order_lines.entry_seq` is 0.
create table unsettled_lines (
    sku        text collate "C" not null,
    -- UUIDv7: units go to the orders in the order of their ids.
    order_id   uuid             not null,
    quantity   line_quantity    not null,
    -- What the counter had before, as the response says. The ledger entry says what the row had.
    before     units            not null,
    -- The request that placed the order, for the ledger entry.
    request_id uuid             not null,
    -- True once the order is cancelled, refunded or expired: its units are in the row already, and the
    -- settlement takes them first, before another line gets them.
    returned   boolean          not null default false,
    constraint unsettled_lines_pkey primary key (sku, order_id)
);

create index returned_lines on unsettled_lines (sku, order_id) where returned;
