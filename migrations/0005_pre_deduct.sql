-- Units that a counter had.
create domain units as bigint
    constraint units_not_negative check (value >= 0);

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
    constraint unsettled_lines_pkey primary key (sku, order_id),
    -- They are deleted with their lines. The look-up, of a row of the same statement, costs orders of
    -- this strategy alone.
    constraint unsettled_lines_line foreign key (order_id, sku)
        references order_lines (order_id, sku) on delete cascade
);

create index returned_lines on unsettled_lines (sku, order_id) where returned;

-- Marks a line that `free_units` has freed, whoever returned its order. The statement that returns the
-- units has locked the item's row, for which a settlement waits. By the primary key: a plan that was
-- made while the table was empty would read all of it later.
create function return_unsettled_line() returns trigger language plpgsql
    set enable_seqscan = off
as $$
begin
    update unsettled_lines set returned = true where sku = new.sku and order_id = new.order_id;
    return null;
end
$$;

create trigger order_lines_return_unsettled after update of counts_for on order_lines
    for each row when (new.counts_for is null) execute function return_unsettled_line();
