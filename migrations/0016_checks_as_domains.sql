-- Checks of one column, as domains.
--
-- A table's checks are kept as text, and every statement that writes to the table reads that text and
-- prepares it anew, whatever was prepared before: for an order of `batched` 13 kB of it, all while the
-- item is locked, 4 to 5 % of what the lock is held. A domain's check is prepared once per session. It
-- says the same about one value, under the same kind of error and with a name.
--
-- What compares columns of one row with each other remains with its table: `stock_ledger_sum`,
-- `balance_ledger_sum`, `orders_paid_at`.
create domain item_sku as text collate "C"
    constraint items_sku_shape check (value ~ '^[a-z0-9-]{1,64}$');
create domain item_name as text
    constraint items_name_length check (length(value) between 1 and 200);
create domain item_price as bigint
    constraint items_price_range check (value between 0 and 1000000000);
create domain item_stock as bigint
    constraint items_stock_range check (value between 0 and 2000000000);
create domain customer_limit as bigint
    constraint customer_limit_range check (value between 1 and 1000);
create domain order_status as text
    constraint orders_status check (value in ('pending', 'paid', 'cancelled', 'refunded'));
create domain line_quantity as bigint
    constraint order_lines_quantity check (value between 1 and 50000);
create domain account_balance as bigint
    constraint accounts_balance_range check (value between 0 and 1000000000000000);
create domain idempotency_key as text collate "C"
    constraint idempotency_key_length check (length(value) between 16 and 255);
create domain stock_reason as text
    constraint stock_ledger_reason check (length(value) between 1 and 64);
create domain balance_reason as text
    constraint balance_ledger_reason check (value in ('top-up', 'payment', 'refund'));
-- Units on a shelf, in the ledger.
create domain units as bigint
    constraint units_not_negative check (value >= 0);
-- Money that is owed, asked or had.
create domain cents as bigint
    constraint cents_not_negative check (value >= 0);
-- The shop's own, or thrown away after a run of the lab.
create domain shop_or_lab as text
    constraint shop_or_lab check (value in ('shop', 'lab'));

-- A trigger on a column stands in the way of the column's new type. They come back as they were.
drop trigger items_version on items;
drop trigger items_are_referred_to on items;
drop trigger orders_free_units on orders;
drop trigger accounts_version on accounts;

alter table items
    drop constraint items_sku_shape,
    drop constraint items_name_length,
    drop constraint items_price_range,
    drop constraint items_stock_range,
    drop constraint items_kind,
    drop constraint items_limit_range,
    alter column sku type item_sku,
    alter column name type item_name,
    alter column price_cents type item_price,
    alter column stock type item_stock,
    alter column kind type shop_or_lab,
    alter column limit_per_user type customer_limit;
alter table orders
    drop constraint orders_status,
    drop constraint orders_total_not_negative,
    alter column status type order_status,
    alter column total_cents type cents;
alter table order_lines
    drop constraint order_lines_quantity,
    drop constraint order_lines_price,
    drop constraint order_lines_limit_range,
    alter column quantity type line_quantity,
    alter column unit_price_cents type cents,
    alter column limit_per_user type customer_limit;
alter table stock_ledger
    drop constraint stock_ledger_not_negative,
    drop constraint stock_ledger_reason,
    alter column before type units,
    alter column after type units,
    alter column reason type stock_reason;
alter table accounts
    drop constraint accounts_balance_range,
    drop constraint accounts_kind,
    alter column balance_cents type account_balance,
    alter column kind type shop_or_lab;
alter table balance_ledger
    drop constraint balance_ledger_not_negative,
    drop constraint balance_ledger_reason,
    alter column before type cents,
    alter column after type cents,
    alter column reason type balance_reason;
alter table idempotency
    drop constraint idempotency_key_length,
    alter column key type idempotency_key;

create trigger items_version before update of stock on items
    for each row execute function raise_version();
create trigger items_are_referred_to before delete or update of sku on items
    for each row execute function refuse_while_referred_to();
create trigger orders_free_units after update of status on orders
    for each row when (old.status in ('pending', 'paid') and new.status in ('cancelled', 'refunded'))
    execute function free_units();
create trigger accounts_version before update of balance_cents on accounts
    for each row execute function raise_version();
