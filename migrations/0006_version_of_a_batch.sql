-- A batch of orders changes a row once and leaves an entry per order in the ledger. Each entry
-- carries the version that its `before` stands for, so the batch raises the version by as many. No
-- path can forget to raise it: whoever says nothing, or too little, raises it by one.
create or replace function raise_version() returns trigger language plpgsql as $$
begin
    new.version := greatest(new.version, old.version + 1);
    return new;
end
$$;
