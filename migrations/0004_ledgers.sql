-- The proof.
--
-- Every change of stock or money leaves one row here, in the transaction that made it and after the
-- row's own update: before, delta, after, and the `version` of the row that `before` was read at.
-- That makes the ledger a race detector:
--
--   a break   `before` is not the `after` of the entry before it: somebody wrote in between
--   a fork    two entries read the same version: both thought they were the next
--
-- `seq` grows in commit order within one item because the entry is inserted while its writer holds
-- the item's row (it has just updated it) and the sequence hands numbers out one by one. Numbers of
-- rolled-back transactions are missing; gaps mean nothing, the chain of before and after does.

create table stock_ledger (
    seq        bigint generated always as identity (cache 1) primary key,
    sku        text   collate "C" not null constraint stock_ledger_item references items (sku),
    before     bigint not null,
    delta      bigint not null,
    after      bigint not null,
    version    bigint not null,
    -- 'opening', 'order', 'cancel', 'refund', 'expiry', or an admin's own word for a restock.
    reason     text   not null constraint stock_ledger_reason check (length(reason) between 1 and 64),
    order_id   uuid   constraint stock_ledger_order references orders (id),
    -- The fence of the lock under which it was written, where there was one that has a fence.
    fence      bigint,
    -- Which HTTP request did it (header X-Request-Id): from an entry one finds the log line.
    request_id uuid   not null,
    at         timestamptz not null default clock_timestamp(),
    constraint stock_ledger_sum check (after = before + delta),
    constraint stock_ledger_not_negative check (before >= 0 and after >= 0),
    -- One entry per line and reason: stock can't be taken twice or given back twice for one line.
    constraint stock_ledger_line_once unique (order_id, sku, reason)
);

create index stock_ledger_sku_seq on stock_ledger (sku, seq);

create table balance_ledger (
    seq        bigint generated always as identity (cache 1) primary key,
    user_id    uuid   not null constraint balance_ledger_account references accounts (user_id),
    before     bigint not null,
    delta      bigint not null,
    after      bigint not null,
    version    bigint not null,
    -- 'top-up', 'payment' or 'refund'.
    reason     text   not null constraint balance_ledger_reason
                      check (reason in ('top-up', 'payment', 'refund')),
    order_id   uuid   constraint balance_ledger_order references orders (id),
    fence      bigint,
    request_id uuid   not null,
    at         timestamptz not null default clock_timestamp(),
    constraint balance_ledger_sum check (after = before + delta),
    constraint balance_ledger_not_negative check (before >= 0 and after >= 0),
    constraint balance_ledger_order_once unique (order_id, reason)
);

create index balance_ledger_user_seq on balance_ledger (user_id, seq);

-- Where money comes from. An order's money is known from the order; money that was put in is known
-- from here, so that the audit can add up both sides. The token is kept for ever, for the same
-- reason as the order's.
create table top_ups (
    id           uuid        primary key,
    user_id      uuid        not null constraint top_ups_account references accounts (user_id),
    token        text        not null,
    amount_cents bigint      not null constraint top_ups_amount check (amount_cents between 1 and 1000000000),
    created_at   timestamptz not null default now(),
    constraint top_ups_token_key unique (user_id, token)
);
