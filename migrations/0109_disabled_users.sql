-- A disabled user has no session and gets none; orders, account and ledgers stay.
alter table users add column disabled_at timestamptz;
