-- Orders that were not paid in time.
--
-- Redis keeps a queue of them, which says which one is due next and gives each to one worker. This
-- is what knows them all, whatever Redis forgets. Partial: an order leaves it when it is paid or
-- cancelled, so it is as large as there are unpaid orders, not as there ever were.
create index orders_unpaid_due on orders (expires_at) where status = 'pending';

-- An order that could not be given back. It is tried again after a growing pause; after so many
-- attempts it is parked: nobody tries until somebody has looked at it. Rows of orders that went
-- their way since are taken out when they are come across.
create table unpaid_failures (
    order_id  uuid        primary key constraint unpaid_failures_order references orders (id),
    attempts  integer     not null constraint unpaid_failures_attempts check (attempts > 0),
    -- What went wrong the last time.
    cause     text        not null,
    failed_at timestamptz not null,
    -- Not before then; never, when it is parked.
    next_at   timestamptz
);
