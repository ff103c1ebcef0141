-- What is sold.
--
-- `stock` is what is on the shelf now. It is redundant on purpose: the ledger says the same by
-- adding up, and the audit holds one against the other. A lost update leaves them apart.

create table items (
    -- Compared bytewise: locks are taken in this order, in SQL and in Rust alike.
    sku         text   collate "C" primary key
                       constraint items_sku_shape check (sku ~ '^[a-z0-9-]{1,64}$'),
    name        text   not null constraint items_name_length check (length(name) between 1 and 200),
    price_cents bigint not null constraint items_price_range check (price_cents between 0 and 1000000000),
    -- It can't go below zero under any strategy, not even without a lock. And yet a shop without
    -- a lock oversells: two orders that both turn 10 into 9 violate nothing here. (The shop puts
    -- 10⁹ on a shelf at most; there is room above, so that what was sold can always come back.)
    stock       bigint not null constraint items_stock_range check (stock between 0 and 2000000000),
    version     bigint not null default 1,
    fence       bigint not null default 0,
    -- 'lab' items are thrown away after a run; the shop neither shows nor counts them.
    kind        text   not null default 'shop' constraint items_kind check (kind in ('shop', 'lab')),
    created_at  timestamptz not null default now()
);

create trigger items_version before update of stock on items
    for each row execute function raise_version();
