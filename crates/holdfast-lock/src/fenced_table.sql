alter table {table}
  add column version bigint not null default 0 check (version >= 0),
  add column fence bigint not null default 0 check (fence >= 0);

create or replace function check_fence() returns trigger language plpgsql as $$
begin
  if new.fence < old.fence then
    raise exception 'stale fence: %, and the row has %', new.fence, old.fence
      using errcode = 'check_violation', hint = 'A later holder of the lock has written.';
  end if;

  if new.version <> old.version + 1 then
    raise exception 'the version must be incremented: %, and the row has %', new.version, old.version
      using errcode = 'check_violation', hint = 'Write with the fence: docs/FENCES.md.';
  end if;
  return new;
end $$;

create trigger check_fence before update on {table}
  for each row execute function check_fence();
