-- The items of the shop.

-- Collation "C": locks are acquired in sku order, and SQL and Rust must sort alike.
create domain item_sku as text collate "C"
    constraint items_sku_shape check (value ~ '^[a-z0-9-]{1,64}$');
create domain item_name as text
    constraint items_name_length check (length(value) between 1 and 200);
create domain item_price as bigint
    constraint items_price_range check (value between 0 and 1000000000);
-- The API accepts at most 10⁹. The range is wider, so that returning sold units cannot fail.
create domain item_stock as bigint
    constraint items_stock_range check (value between 0 and 2000000000);
-- The largest limit is the largest quantity of an order line.
create domain customer_limit as bigint
    constraint customer_limit_range check (value between 1 and 1000);

create table items (
    sku            item_sku       primary key,
    name           item_name      not null,
    price_cents    item_price     not null,
    -- Units available now. Redundant with the sum of the stock ledger, on purpose: the audit
    -- compares the two, and a lost update makes them differ. The check prevents negative stock
    -- under every strategy, but not overselling: two orders that both write 9 over 10 violate
    -- nothing here.
    stock          item_stock     not null,
    -- Raised by every write of the stock.
    version        bigint         not null default 1,
    -- The highest fence that wrote this row. A write with a lower fence is stale and matches no row.
    fence          bigint         not null default 0,
    kind           shop_or_lab    not null default 'shop',
    created_at     timestamptz    not null default now(),
    -- Units that one customer may have in pending and paid orders. Null: no limit.
    limit_per_user customer_limit null
);

create trigger items_version before update of stock on items
    for each row when (new.version <= old.version)
    execute function raise_version();
