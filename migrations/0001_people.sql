-- Who may do what.
--
-- Ids are UUIDs that we make ourselves (version 7, so they sort by time and index well): a caller
-- can know the id of what it asked for before the answer arrives.

create table users (
    id            uuid        primary key,
    name          text        not null constraint users_name_key unique
                              constraint users_name_shape check (name ~ '^[a-z0-9._-]{1,64}$'),
    -- A PHC string: it says by itself which algorithm made it and at what cost.
    password_hash text        not null,
    admin         boolean     not null default false,
    created_at    timestamptz not null default now()
);

-- A session is known by the SHA-256 of its token: who reads this table can't sign in with it.
create table sessions (
    token_hash bytea       primary key,
    user_id    uuid        not null constraint sessions_user references users (id) on delete cascade,
    -- The second secret of a browser's session, which a foreign page can't read and so can't send.
    csrf       text        not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null
);

create index sessions_user_id on sessions (user_id);

-- The one function behind "every change of a value raises the row's version". It runs on every
-- statement that names the value's column, also when the new value happens to equal the old one:
-- a write that changed 9 into 9 is still a write that somebody else must not miss.
create function raise_version() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    return new;
end
$$;

-- Money apart from the person, because the row is locked and rewritten with every payment.
create table accounts (
    user_id       uuid   primary key constraint accounts_user references users (id),
    balance_cents bigint not null default 0
                  constraint accounts_balance_range check (balance_cents between 0 and 1000000000000000),
    version       bigint not null default 1,
    -- The highest fence that ever wrote here. A holder with a lower one comes too late.
    fence         bigint not null default 0,
    -- 'lab' once a broken strategy has written here: then its sums prove nothing about the shop.
    kind          text   not null default 'shop' constraint accounts_kind check (kind in ('shop', 'lab'))
);

create trigger accounts_version before update of balance_cents on accounts
    for each row execute function raise_version();
