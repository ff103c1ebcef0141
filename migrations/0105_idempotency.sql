-- Key records: one row per idempotency key, with the stored response.
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
-- (`purge_walks`), so no index by age is needed: a B-tree would cost every order an insert, and the
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
