-- One answer per key.
--
-- The row is inserted (claimed) by the first statement of the transaction that does the work, and
-- gets the answer before that transaction commits. A second request with the same key waits in its
-- own insert until the first has committed or rolled back: then it either reads the finished answer
-- or does the work itself. There is no state in between, so no clean-up after a crash, and an
-- unfinished row is never seen by anybody else.

create table idempotency (
    user_id     uuid        not null,
    method      text        not null,
    path        text        not null,
    key         text        not null constraint idempotency_key_length check (length(key) between 16 and 255),
    -- SHA-256 of the parsed request: the same key with another payload is a mistake worth telling.
    fingerprint bytea       not null,
    status      smallint,
    -- Bytes, not JSON: a replay is equal to the byte.
    body        bytea,
    created_at  timestamptz not null default now(),
    constraint idempotency_pkey primary key (user_id, method, path, key)
);

-- Kept for a day; found by age when it is time to forget.
create index idempotency_created_at on idempotency (created_at);
