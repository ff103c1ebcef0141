-- The shop: users and accounts, items, orders, ledgers, key records.
--
-- Conventions of all migrations:
--  * Ids are UUIDv7, minted by the application: they sort by creation time, so inserts append to
--    the right-most index page, and a client can know an id before the response arrives.
--  * A check on one column is a domain, not a table constraint. Postgres parses and plans a table's
--    check expressions for every statement that writes the table, including prepared ones (4 to 5 %
--    of an order's time under the lock); a domain's check is compiled once per session. Checks that
--    compare columns of one row stay table constraints.
--  * Every constraint has a name, because the application maps violations by name.

-- An amount that cannot be negative.
create domain cents as bigint
    constraint cents_not_negative check (value >= 0);
-- 'lab' marks rows of lab runs. The shop does not show them, and the audit counts them separately.
create domain shop_or_lab as text
    constraint shop_or_lab check (value in ('shop', 'lab'));

create table users (
    id            uuid        primary key,
    name          text        not null constraint users_name_key unique
                              constraint users_name_shape check (name ~ '^[a-z0-9._-]{1,64}$'),
    -- A PHC string: it names its algorithm and cost parameters.
    password_hash text        not null,
    admin         boolean     not null default false,
    created_at    timestamptz not null default now(),
    -- A disabled user has no session and gets none; orders, account and ledgers stay.
    disabled_at   timestamptz,
    -- The user whose lab account it is: a user of its own, who cannot sign in, with an account of kind
    -- 'lab'. It pays the orders of lab items, so that money made there buys nothing in the shop.
    -- Created with the user's first payment in the lab. Unique: two first payments at once create one.
    lab_account_of uuid       constraint users_lab_account_of references users (id)
                              constraint users_lab_account_of_key unique,
    -- A student of a class, who joined under this name without a password; the user's own name is
    -- class-<12 hex digits>. Null again when the class ends: the nickname leaves, orders and ledgers
    -- stay.
    nickname      text        constraint users_nickname_shape
                              check (nickname = btrim(nickname) and length(nickname) between 1 and 24),
    -- The nickname in the form in which nicknames are compared. The shop folds it: Postgres knows
    -- ASCII alone in the locale C. Unique: two students do not differ in case or normal form alone.
    folded_nickname text      constraint users_nickname_key unique,
    constraint users_nickname_folded check ((nickname is null) = (folded_nickname is null))
);

-- Only the SHA-256 of the session token is stored: read access to this table does not allow
-- signing in.
create table sessions (
    token_hash bytea       primary key,
    user_id    uuid        not null constraint sessions_user references users (id) on delete cascade,
    -- The CSRF token of a browser session.
    csrf       text        not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null
);

-- Lists a user's sessions; also used by the cascading delete.
create index sessions_user_id on sessions (user_id);
-- The purge job deletes expired sessions every hour.
create index sessions_expires_at on sessions (expires_at);

create domain account_balance as bigint
    constraint accounts_balance_range check (value between 0 and 1000000000000000);

-- A user's money. Separate from `users` because the row is locked and updated by every payment.
create table accounts (
    user_id       uuid            primary key constraint accounts_user references users (id),
    balance_cents account_balance not null default 0,
    -- Raised by every write of the balance; version guards and the ledger rely on it.
    version       bigint          not null default 1,
    -- The highest fence that wrote this row. A write with a lower fence is stale and matches no row.
    fence         bigint          not null default 0,
    -- 'lab': the account of a lab user (`users.lab_account_of`), which the audit counts separately.
    kind          shop_or_lab     not null default 'shop'
);

-- Guarantees that every update of a value raises the row's version, also when the new value equals
-- the old one: such an update is still a write that a concurrent reader must detect.
--
-- The triggers fire only when the statement did not raise the version itself, so the shop's own
-- statements pay for the WHEN condition and not for a PL/pgSQL call. The trigger must not reject
-- the update: the lab's unguarded strategies need their lost updates to succeed.
create function raise_version() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    return new;
end
$$;

create trigger accounts_version before update of balance_cents on accounts
    for each row when (new.version <= old.version)
    execute function raise_version();

-- Items

-- Collation "C": locks are acquired in sku order, and SQL and Rust must sort alike.
create domain item_sku as text collate "C"
    constraint items_sku_shape check (value ~ '^[a-z0-9-]{1,64}$');
create domain item_name as text
    constraint items_name_length check (length(value) between 1 and 200);
create domain item_price as bigint
    constraint items_price_range check (value between 0 and 1000000000);
-- The API accepts at most 10⁹. The range is wider, so that returning sold units cannot fail. Which
-- items may be below zero depends on other columns: `items_stock_not_negative`.
create domain item_stock as bigint
    constraint items_stock_range check (value between -2000000000 and 2000000000);
create domain item_description as text
    constraint items_description_length check (length(value) <= 2000);
-- The largest limit is the largest quantity of an order line.
create domain customer_limit as bigint
    constraint customer_limit_range check (value between 1 and 1000);

create table items (
    sku            item_sku       primary key,
    name           item_name      not null,
    -- The name on Chinese pages. Null: that in `name`.
    name_zh        item_name      null,
    price_cents    item_price     not null,
    -- Units available now. Redundant with the sum of the stock ledger, on purpose: the audit
    -- compares the two, and a lost update makes them differ. A check prevents negative stock under
    -- every strategy, but not overselling: two orders that both write 9 over 10 violate nothing.
    stock          item_stock     not null,
    -- Raised by every write of the stock, and of what an order copies or decides on.
    version        bigint         not null default 1,
    -- The highest fence that wrote this row. A write with a lower fence is stale and matches no row.
    fence          bigint         not null default 0,
    kind           shop_or_lab    not null default 'shop',
    created_at     timestamptz    not null default now(),
    -- Units that one customer may have in pending and paid orders. Null: no limit.
    limit_per_user customer_limit null,
    -- Running sums: opening + restocked = sold + stock, at any moment. Every page shows this
    -- equation. From the ledger and the order lines it would cost a pass over the whole history; from
    -- these columns it costs a pass over the items. Only increments are written, never values that
    -- were computed from a read: a lost update of `stock` therefore still makes the equation false.
    -- The audit compares the sums with the ledger and the order lines (`running-sums`).
    --
    -- The opening stock.
    opening        bigint         not null default 0,
    -- Units added since without an order, less units removed.
    restocked      bigint         not null default 0,
    -- Units in pending and paid orders.
    sold           bigint         not null default 0,
    -- Plain text; pages keep its line breaks.
    description    item_description not null default '',
    -- A hidden item is not listed and takes no new orders. Its ledger and its orders stay: those are
    -- paid, cancelled and refunded as before.
    hidden         boolean        not null default false,
    -- True for an item of the lab that shows what happens to a shop without the check below.
    may_go_below_zero boolean     not null default false,
    constraint items_stock_not_negative
        check (stock >= 0 or (kind = 'lab' and may_go_below_zero))
);

-- Also of what an order copies from the row or decides on, and of what an edit reads: a leader keeps
-- the row between batches, and a change by hand must not be sold past, nor be undone. The shop's own
-- statements set the version, and pay nothing.
create trigger items_version
    before update of stock, name, name_zh, price_cents, limit_per_user, hidden, description on items
    for each row when (new.version <= old.version)
    execute function raise_version();

-- Orders and their lines
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
-- Pending orders by due time: the queue of their expiry. Partial: an order leaves the index when it
-- is paid or cancelled, so its size is the number of unpaid orders.
create index orders_unpaid_due on orders (expires_at) where status = 'pending';

create table order_lines (
    order_id         uuid             not null,
    sku              text collate "C" not null,
    quantity         line_quantity    not null,
    -- The price when the order was placed; later price changes do not affect it.
    unit_price_cents cents            not null,
    -- The item's names when the order was placed: what was sold keeps its name.
    name             text             not null,
    name_zh          text             null,
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
-- One customer may have most lines of an item; the plan for any customer must use the index.
alter table order_lines alter column counts_for set (n_distinct = -0.5);

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

-- The append-only ledgers of stock and money
--
-- Every change of stock or balance inserts one entry in the same transaction: `before`, `delta`,
-- `after`, and the `version` of the row that `before` was read at. The ledger therefore detects
-- races:
--
--   a break   `before` is not the `after` of the previous entry: another write came in between
--   a fork    two entries were computed from the same version: a lost update
--
-- The order of a ledger is (sku, version, seq), or (user_id, version, seq). `seq` is a cursor for
-- paging. Under every strategy that excludes concurrent writers it grows in the same order, because
-- a writer fetches it while it holds the row or the lock; `cache 1` keeps sessions from
-- preallocating numbers. Gaps mean nothing: rolled-back transactions leave them. `by default`: a
-- statement may insert a number that it fetched with `nextval` before.

create domain stock_reason as text
    constraint stock_ledger_reason check (length(value) between 1 and 64);
-- 'welcome': the credit of a user who signs up. 'lab': the opening balance of a lab account.
create domain balance_reason as text
    constraint balance_ledger_reason
    check (value in ('top-up', 'payment', 'refund', 'welcome', 'lab'));

-- No foreign keys to items and orders: for every entry they cost two lookups under the item's lock,
-- a tenth of an order's time. Entries are never changed, sold items and their orders are never
-- deleted (see References), and the audit checks that every reference resolves. Nor has it a check
-- of its own that no value is below zero: it would have to except items of the lab, and cost an
-- order 5 µs. The check of `items` covers the row that the same statement writes, and the audit
-- (`nothing-negative`) the entries.
create table stock_ledger (
    seq        bigint           generated by default as identity (cache 1),
    sku        text collate "C" not null,
    before     bigint           not null,
    delta      bigint           not null,
    after      bigint           not null,
    version    bigint           not null,
    -- 'opening', 'order', 'cancel', 'refund', 'expiry', or an admin's own word for a restock.
    reason     stock_reason     not null,
    order_id   uuid,
    -- The fence of the lease it was written under; null for strategies without fences.
    fence      bigint,
    -- The HTTP request (X-Request-Id) that caused it; leads to the log line.
    request_id uuid             not null,
    at         timestamptz      not null default clock_timestamp(),
    -- The only index for reads: entries are looked up by item.
    constraint stock_ledger_pkey primary key (sku, seq),
    constraint stock_ledger_sum check (after = before + delta)
);

-- One entry per line and reason: the units of a line are returned at most once. Entries of orders
-- are left out, which saves each order an index insert: an order's own entry is unique because the
-- same statement inserts the line, whose primary key is (order_id, sku).
create unique index stock_ledger_line_once on stock_ledger (order_id, sku, reason)
    where reason <> 'order';

create table balance_ledger (
    seq        bigint         generated by default as identity (cache 1),
    user_id    uuid           not null constraint balance_ledger_account references accounts (user_id),
    before     cents          not null,
    delta      bigint         not null,
    after      cents          not null,
    version    bigint         not null,
    reason     balance_reason not null,
    order_id   uuid           constraint balance_ledger_order references orders (id),
    fence      bigint,
    request_id uuid           not null,
    at         timestamptz    not null default clock_timestamp(),
    -- The only index for reads: entries are looked up by account.
    constraint balance_ledger_pkey primary key (user_id, seq),
    constraint balance_ledger_sum check (after = before + delta),
    -- An order is paid at most once and refunded at most once. Costs a payment one index insert.
    constraint balance_ledger_order_once unique (order_id, reason)
);

-- Money that entered the shop. The audit compares its sum, together with the orders, with the
-- accounts. `token` is the client's idempotency key and unique forever, while the key record is
-- deleted after its day: an old key must not add money a second time.
create table top_ups (
    id           uuid             primary key,
    user_id      uuid             not null constraint top_ups_account references accounts (user_id),
    token        text collate "C" not null,
    amount_cents bigint           not null
                 constraint top_ups_amount check (amount_cents between 1 and 1000000000),
    created_at   timestamptz      not null default now(),
    constraint top_ups_token_key unique (user_id, token)
);

-- Key records: one row per idempotency key, with the stored response
--
-- The row is inserted once, complete with its response, by the statement (or in the transaction)
-- that does the work: it exists if and only if the work was committed. A duplicate that runs at the
-- same time waits in its own insert until the first commits or rolls back, then gets a unique
-- violation and replays the response, or does the work. There is no unfinished state and nothing to
-- clean up after a crash. Rows are not updated while they are hot, so pages are filled completely
-- (room for a second version, `fillfactor` 22, cost an order 4 µs).
--
-- Retention: rows of orders stay forever, because they are the only guarantee that an old key does
-- not order a second time; after 24 hours their body is removed. Other rows are deleted after
-- 24 hours. The purge job finds old rows by scanning a part of the table's blocks per run
-- (`purge_walk`), so no index by age is needed: a B-tree would cost every order an insert, and the
-- block ranges of a BRIN index stop being selective once deleted rows make room for new ones.

create domain idempotency_key as text collate "C"
    constraint idempotency_key_length check (length(value) between 16 and 255);

create table idempotency (
    -- The first 16 bytes of the SHA-256 of user, method, path and key, with a space between them.
    -- An index on the four columns is five times as large; inserting into it cost an order 3 to
    -- 6 µs more of 50, and a look-up half as much again.
    id          uuid             constraint idempotency_pkey primary key,
    user_id     uuid             not null,
    method      text collate "C" not null,
    path        text collate "C" not null,
    key         idempotency_key  not null,
    -- SHA-256 of the parsed request: detects the same key with another payload.
    fingerprint bytea            not null,
    status      smallint,
    -- Bytes, not JSON: a replay is byte-identical. Null once the body of an old order is removed.
    body        bytea,
    created_at  timestamptz      not null default now(),
    -- The order that the key placed; null for all other commands.
    order_id    uuid
);

-- The strategies under which replicas may sell the shop's own items (`src/lock_family.rs`).
-- At most one row; without one, the first replica records its own.
create table lock_family (
    is_only boolean primary key default true check (is_only),
    -- Name of the family: strategies that exclude each other.
    family text not null,
    -- The strategy of the replica that recorded it, for messages.
    strategy text not null,
    -- Identifies the Redis of a family that excludes by Redis alone: that Redis has a key of this id.
    redis_mark uuid,
    -- Authenticates the messages between replicas: who can reach Redis only must not order for others.
    message_key uuid not null default gen_random_uuid(),
    recorded_at timestamptz not null default now()
);

-- What admins changed of items, orders and users, append-only. Stock and money are not here but in
-- their ledgers. An entry is written by the statement or in the transaction of its change.
create table admin_log (
    -- Cursor of the list, newest first.
    seq        bigint      generated always as identity constraint admin_log_pkey primary key,
    at         timestamptz not null default clock_timestamp(),
    admin      uuid        not null constraint admin_log_admin references users (id),
    action     text        not null constraint admin_log_action
                           check (action in ('create-item', 'edit-item', 'cancel-order',
                                             'refund-order', 'disable-user', 'enable-user',
                                             'end-sessions', 'set-password')),
    -- The sku of an item; the id of an order; the id of a user, whose name may change.
    subject    text        not null,
    -- The fields that changed, before and after. Never a password.
    before     jsonb       not null default '{}',
    after      jsonb       not null default '{}',
    request_id uuid        not null
);

-- Finds the entries of one item or user, newest first.
create index admin_log_subject on admin_log (subject, seq desc);

-- The baskets of signed-in users; those of visitors are in a cookie of the browser. No reservation:
-- a basket names units, and only an order takes them.
create table baskets (
    user_id    uuid        primary key
                           constraint baskets_user references users (id) on delete cascade,
    -- As in the cookie: the token of the order to be placed, then a line per item.
    content    text        not null constraint baskets_length check (length(content) <= 4000),
    updated_at timestamptz not null default now()
);
