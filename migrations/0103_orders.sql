-- Orders and their lines.
--
--   pending ──pay──▶ paid ──refund──▶ refunded
--      └────cancel, expiry──▶ cancelled
--
-- The status changes only by compare-and-set (`update … where status = 'pending'`): of two
-- concurrent transitions of one order exactly one succeeds, whatever locks they hold.

create domain order_status as text
    constraint orders_status check (value in ('pending', 'paid', 'cancelled', 'refunded'));
create domain line_quantity as bigint
    constraint order_lines_quantity check (value between 1 and 50000);

create table orders (
    id          uuid             primary key,
    -- No foreign key, see "References" below.
    user_id     uuid             not null,
    status      order_status     not null,
    total_cents cents            not null,
    -- The client's idempotency key. Not unique here: the key record (`idempotency`) is the one
    -- source of uniqueness and is kept forever for orders. A second unique index cost 12 to 20 % of
    -- an order's time in Postgres.
    token       text collate "C" not null,
    created_at  timestamptz      not null,
    expires_at  timestamptz      not null,
    paid_at     timestamptz,
    constraint orders_paid_at check ((paid_at is not null) = (status in ('paid', 'refunded')))
);

-- A user's orders, newest first: the list of orders and the cursor of its pages.
create index orders_user_newest on orders (user_id, id desc);
-- Pending orders by due time. The expiry queue in Redis is rebuilt from it. Partial: an order leaves
-- the index when it is paid or cancelled, so its size is the number of unpaid orders.
create index orders_unpaid_due on orders (expires_at) where status = 'pending';

create table order_lines (
    order_id         uuid             not null,
    sku              text collate "C" not null,
    quantity         line_quantity    not null,
    -- The price when the order was placed; later price changes do not affect it.
    unit_price_cents cents            not null,
    -- The buyer while the order is pending or paid; null after it is cancelled or refunded.
    -- Redundant with the order, because the customer limit is counted under the item's lock: the
    -- join over all lines of an item and all orders of a user cost 300 ms for 100,000 cancelled
    -- orders. Lines with a buyer are never more than the limit.
    counts_for       uuid             null,
    -- The limit in force when the order was placed. The audit checks each line against its own.
    limit_per_user   customer_limit   null,
    -- `seq` of the ledger entry that took the units: the entry is found by (sku, seq), the ledger's
    -- primary key, without an index on the ledger's order_id.
    entry_seq        bigint           not null,
    constraint order_lines_pkey primary key (order_id, sku)
);

-- Counts the units of one customer, and finds the lines of one item. Not partial for limited items:
-- an item may get its first limit after a year of sales, and the index would then be built under
-- its lock.
create index order_lines_sku_counts_for on order_lines (sku, counts_for);

-- Clears `counts_for` when an order is cancelled or refunded, so that no code path can forget it.
create function free_units() returns trigger language plpgsql as $$
begin
    update order_lines set counts_for = null where order_id = new.id;
    return null;
end
$$;

create trigger orders_free_units after update of status on orders
    for each row when (old.status in ('pending', 'paid') and new.status in ('cancelled', 'refunded'))
    execute function free_units();

-- References.
--
-- Foreign keys from orders to users, and from lines to orders and items, would cost an order three
-- lookups with `for key share` (each writes to the referenced row), a tenth of its time, all under
-- the item's lock. They could not fail: the buyer is signed in, the order is written by the same
-- statement, and the item's row is updated in the same transaction. Instead the referenced rows
-- refuse to be deleted or to change their key, which costs an order nothing, and the audit checks
-- that every reference resolves. `truncate` is not covered.
create function refuse_while_referred_to() returns trigger language plpgsql as $$
declare
    referred_to boolean;
begin
    case tg_table_name
        when 'users' then
            referred_to := exists (select from orders where user_id = old.id);
        when 'orders' then
            referred_to := exists (select from order_lines where order_id = old.id);
        when 'items' then
            referred_to := exists (select from order_lines where sku = old.sku);
    end case;
    if referred_to then
        raise exception using
            errcode = 'foreign_key_violation',
            message = format('a row of %I can''t be deleted or renamed: orders refer to it', tg_table_name);
    end if;
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end
$$;

create trigger users_are_referred_to before delete or update of id on users
    for each row execute function refuse_while_referred_to();
create trigger orders_are_referred_to before delete or update of id on orders
    for each row execute function refuse_while_referred_to();
create trigger items_are_referred_to before delete or update of sku on items
    for each row execute function refuse_while_referred_to();
