-- Users, their sessions and their accounts.
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
    created_at    timestamptz not null default now()
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
    -- 'lab' after a broken strategy wrote this account: its sums prove nothing about the shop.
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
