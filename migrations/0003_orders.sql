-- An order, and what is in it.
--
--   pending ──pay──▶ paid ──refund──▶ refunded
--      └────cancel──▶ cancelled
--
-- The status only changes by compare-and-set (`update … where status = 'pending'`), so of two
-- requests that want to move an order, one does, whatever locks they hold.

create table orders (
    id          uuid        primary key,
    user_id     uuid        not null constraint orders_user references users (id),
    status      text        not null constraint orders_status
                            check (status in ('pending', 'paid', 'cancelled', 'refunded')),
    total_cents bigint      not null constraint orders_total_not_negative check (total_cents >= 0),
    -- The client's token. Unique for ever, while the stored answer is kept for a day only: a token
    -- used last year must not order a second time.
    token       text        not null,
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    paid_at     timestamptz,
    constraint orders_token_key unique (user_id, token),
    constraint orders_paid_at check ((paid_at is not null) = (status in ('paid', 'refunded')))
);

create index orders_user_newest on orders (user_id, id desc);

create table order_lines (
    order_id         uuid   not null constraint order_lines_order references orders (id),
    sku              text   collate "C" not null constraint order_lines_item references items (sku),
    quantity         bigint not null constraint order_lines_quantity check (quantity between 1 and 50000),
    -- The price at the moment of ordering: a later change of the item's price is not the buyer's.
    unit_price_cents bigint not null constraint order_lines_price check (unit_price_cents >= 0),
    constraint order_lines_pkey primary key (order_id, sku)
);

create index order_lines_sku on order_lines (sku);
