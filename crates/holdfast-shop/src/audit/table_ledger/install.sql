-- A ledger of one column: each change of a row is an entry, with before, after, transaction, time and
-- client. What it finds, what it cannot find, and its price: docs/LEDGER.md. Needs Postgres 14.
--
-- Run it as the owner of the table. It waits for transactions that write the table; later ones wait
-- until each row has its opening entry.
begin;
set local lock_timeout = '5s';
lock table {table} in share row exclusive mode;

do $ledger$
declare
  keys constant text[] := array[{key_arguments}];
begin
  if not exists (
    select from pg_attribute join pg_type on pg_type.oid = atttypid
     where attrelid = '{table_text}'::regclass
       and attname = '{value_column_text}' and typcategory = 'N'
  ) then
    raise exception 'there is no column of numbers with the name %', '{value_column_text}';
  end if;

  if not exists (
    select from pg_index
     where indrelid = '{table_text}'::regclass and indisprimary
       and array(select attname::text from pg_attribute
                  where attrelid = indrelid and attnum = any (indkey[0:indnkeyatts - 1])) <@ keys
  ) then
    raise exception '% is not the primary key', keys
      using hint = 'Name each of its columns: --key A --key B.';
  end if;
end $ledger$;

create table {ledger} (
  key text not null,
  seq bigint generated always as identity,
  before numeric,                       -- null: no row, or a row with null
  after numeric,                        -- the same
  is_update boolean not null default false,
  xid xid8 not null default pg_current_xact_id(),
  began timestamptz not null default transaction_timestamp(),
  written timestamptz not null default clock_timestamp(),
  ended timestamptz,                    -- when the commit began
  pid int not null default pg_backend_pid(),
  application text not null default current_setting('application_name'),
  client inet default inet_client_addr(),
  overlap text,                         -- with the transaction of the entry before
  guard text,                           -- why an entry with an overlap is no fork
  primary key (key, seq)
);
comment on table {ledger} is 'holdfast ledger';

-- The body of these is parsed now, so that they follow a column that is renamed.
create function {ledger_key}(of_row {table}) returns text stable
begin atomic select {key_columns}; end;

create function {ledger_value}(of_row {table}) returns numeric stable
begin atomic select of_row.{value_column}::numeric; end;

insert into {ledger} (key, after) select {ledger_key}(t), {ledger_value}(t) from {table} t;

-- Returns why the text of a statement cannot write a value that was computed from an older row.
create function {ledger_text_guard}(
  statement text, overlap text, value_column text, keys text[], was_null boolean
) returns text immutable language plpgsql as $ledger$
declare
  own constant text := '"?\m' || regexp_replace(value_column, '(\W)', '\\\1', 'g') || '\M"?';
  assignments constant text := substring(statement from '(?i)\mset\M(.*)$');
  value text;
begin
  if assignments is null or statement !~* '\m(update|merge|conflict)\M' then
    return 'hidden';
  end if;

  -- Up to the next assignment, the end, or a subquery: this one reads what was there when the
  -- statement began, and not what the update has waited for.
  value := substring(assignments from '(?i)' || own || '\s*=\s*((?:(?!,\s*"?[\w$]+"?\s*=|;'
                     '|\m(?:from|where|returning)\M|\(\s*select\M).)*)');
  if exists (
    select from regexp_matches(value, '(?:"?([\w$]+)"?\s*\.\s*)?' || own, 'gi') as mention
     where mention[1] is null
        -- The table or its alias.
        or statement ~* ('\m' || mention[1] || '"?\s+set\M')
        or statement ~* ('\minto\s+(\S+\s+(as\s+)?|\S+\.)?"?' || mention[1] || '\M')
  ) then
    return 'computed';
  end if;

  if statement ~* '\mfor\s+(no\s+key\s+)?update\M' then
    return 'row lock';
  end if;

  -- The value itself, or a version. A version that did not change says that the other writer does
  -- not count it.
  if exists (
    select from regexp_matches(substring(assignments from '(?i)^(.*?)\mwhere\M'),
                               '"?\m([\w$]+)"?\s*=', 'g') as assigned
     where substring(assignments from '(?i)\mwhere\M(.*)$') ~* ('\m' || assigned[1] || '"?\s*=')
       and assigned[1] <> all (keys)
       and (overlap <> 'unseen' or lower(assigned[1]) = lower(value_column))
  ) then
    return 'compared';
  end if;

  if was_null and substring(assignments from '(?i)\mwhere\M(.*)$') ~* (own || '\s*is\s+null\M') then
    return 'compared';
  end if;
  return null;
end $ledger$;

create function {ledger_write}(
  of_key text, old_value numeric, new_value numeric, is_update boolean, seen pg_snapshot,
  of_table oid, keys text[]
) returns void language plpgsql as $ledger$
declare
  -- Otherwise Postgres has refused to write over what the transaction has not seen, and under
  -- serializable a read of the ledger would be a conflict with the writers of other rows.
  may_overlap constant boolean := current_setting('transaction_isolation') like 'read %';
  last record;
  overlap text;
  guard text;
  stack text;
  value_column text;
begin
  if may_overlap and is_update then
    select l.xid, l.is_update, coalesce(l.ended, l.written) as ended into last
      from {ledger} l where l.key = of_key order by l.seq desc limit 1;
    overlap := case
                 when last.xid = pg_current_xact_id() then null
                 when not pg_visible_in_snapshot(last.xid, seen) then 'unseen'
                 -- Nobody has read a row before it was inserted.
                 when transaction_timestamp() < last.ended and last.is_update
                   then 'began before'
               end;
  end if;

  if overlap is not null then
    get diagnostics stack = pg_context;
    select a.attname into value_column
      from pg_trigger t join pg_attribute a on a.attrelid = t.tgrelid and a.attnum = t.tgattr[0]
     where t.tgrelid = of_table and t.tgname = '{repeats_text}';

    -- The statement of the function that has called the trigger, or the client's.
    guard := {ledger_text_guard}(
      left(coalesce(substring(stack from '_keep"?\(\)[^\n]*\n(.*)$'), current_query()), 4000),
      overlap, value_column, keys, old_value is null);

    -- A lock that the transaction may have had when it read the row.
    if guard is null and overlap = 'began before' then
      select case
               when bool_or(relation = of_table and mode in (
                      'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))
                 then 'table lock'
               -- The check of a foreign key takes the same lock. After one, a read without a lock
               -- decides.
               when bool_or(relation = of_table and mode = 'RowShareLock')
                    and not (bool_or(relation = of_table and mode = 'AccessShareLock')
                             and bool_or(mode = 'RowExclusiveLock' and relation in (
                                   select conrelid from pg_constraint where confrelid = of_table)))
                 then 'row lock'
               when bool_or(locktype = 'advisory') then 'advisory lock'
             end into guard
        from pg_locks where pid = pg_backend_pid() and granted;
    end if;
  end if;

  insert into {ledger} (key, before, after, is_update, ended, overlap, guard)
  values (of_key, old_value, new_value, is_update,
          case when not may_overlap then clock_timestamp() end, overlap, guard);
end $ledger$;

-- Stable, because only then the snapshot is that of the statement: what it has seen.
create function {ledger_keep}() returns trigger stable security definer language plpgsql
set search_path = pg_catalog, pg_temp as $ledger$
declare
  -- Of several columns the key of no row is an array of nulls.
  old_key constant text := case when tg_op <> 'INSERT' then {ledger_key}(old) end;
  new_key constant text := case when tg_op <> 'DELETE' then {ledger_key}(new) end;
  seen constant pg_snapshot := pg_current_snapshot();
begin
  if old_key = new_key then
    perform {ledger_write}(new_key, {ledger_value}(old), {ledger_value}(new), true, seen, tg_relid,
                           tg_argv);
  else
    perform {ledger_write}(old_key, {ledger_value}(old), null, false, seen, tg_relid, tg_argv)
      where old_key is not null;
    perform {ledger_write}(new_key, null, {ledger_value}(new), false, seen, tg_relid, tg_argv)
      where new_key is not null;
  end if;
  return null;
end $ledger$;

-- At the commit: who reads after a lock was released, and before the commit, reads an older row.
create function {ledger_close}() returns trigger security definer language plpgsql
set search_path = pg_catalog, pg_temp as $ledger$
declare
  kept text := new.guard;
begin
  if kept = 'advisory lock' then
    select max(kept) into kept
      from pg_locks where pid = pg_backend_pid() and granted and locktype = 'advisory';
  end if;
  -- By its place, where nobody else updates it: by the index it costs thrice as much.
  update {ledger} l set ended = clock_timestamp(), guard = kept where l.ctid = new.ctid;
  return null;
end $ledger$;

revoke execute on function
  {ledger_write}(text, numeric, numeric, boolean, pg_snapshot, oid, text[]),
  {ledger_keep}(), {ledger_close}() from public;

create constraint trigger {close} after insert on {ledger}
  deferrable initially deferred for each row when (new.ended is null)
  execute function {ledger_close}();

create trigger {rows} after insert or delete on {table}
  for each row execute function {ledger_keep}({key_arguments});

create trigger {changes} after update on {table} for each row
  when (old.{value_column} is distinct from new.{value_column}
        or ({old_key}) is distinct from ({new_key}))
  execute function {ledger_keep}({key_arguments});

-- The same value again: the second of two who have subtracted from one that both have read.
create trigger {repeats} after update of {value_column} on {table} for each row
  when (old.{value_column} is not distinct from new.{value_column}
        and ({old_key}) is not distinct from ({new_key}))
  execute function {ledger_keep}({key_arguments});
commit;
