-- What an order's indexes cost.
--
-- More than a third of what Postgres does for an order of a batch is to find the places of its rows in
-- indexes, most of it while the item is locked.
--
-- An entry is asked for by its item or its account, and the numbers are the database's own. So one
-- index, which was there for both ledgers beside the primary key, is the primary key.
alter table stock_ledger
    drop constraint stock_ledger_pkey,
    add constraint stock_ledger_pkey primary key (sku, seq);
drop index stock_ledger_sku_seq;
alter table balance_ledger
    drop constraint balance_ledger_pkey,
    add constraint balance_ledger_pkey primary key (user_id, seq);
drop index balance_ledger_user_seq;

-- Of a customer's many keys the method and the path are nearly always the same: with the key before
-- them, one comparison less at each step. And which of two keys comes first is nobody's language's
-- to say: bytes are compared faster than words.
alter table idempotency
    drop constraint idempotency_pkey,
    alter column key type text collate "C",
    alter column path type text collate "C",
    alter column method type text collate "C",
    add constraint idempotency_pkey primary key (user_id, key, path, method);
alter table orders alter column token type text collate "C";
alter table top_ups alter column token type text collate "C";

-- 0007 leaves room on a page for the second version of each of its rows, which is larger by the
-- answer. It was too little for three in ten of them, and those are put into the index once more.
alter table idempotency set (fillfactor = 22);
