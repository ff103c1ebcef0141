-- The checks of a ledger that install.sql has made, as those of ../checks.sql.

-- check forks: no entry was written from a row older than the previous entry
with told as not materialized (
  select *,
         concat_ws(' → ', coalesce(before::text, 'null'), coalesce(after::text, 'null')) as change,
         concat_ws(' ', to_char(written at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.MS'),
                   'by', nullif(application, ''), host(client), 'pid', pid) as who
    from {ledger})
select format('%s entry %s (%s, %s) ', key, seq, change, who)
       || case overlap when 'unseen' then 'had not seen' else 'began before the end of' end
       || coalesce(' ' || previous, ' an entry that is gone')
  from told
  left join lateral (
         select format('entry %s (%s, %s)', seq, change, who) as previous from told earlier
          where earlier.key = told.key and earlier.seq < told.seq order by seq desc limit 1) p on true
 where overlap is not null and guard is null and {is_lately}
 order by key, seq;

-- check breaks: each entry begins with the value at which the previous entry ended
select format('%s entry %s: entry %s ended at %s, this one begins at %s', key, seq, previous_seq,
              coalesce(previous::text, 'null or no row'),
              coalesce(before::text, 'null or no row'))
  from (select *, lag(seq) over chain as previous_seq, lag(after) over chain as previous
          from {ledger} window chain as (partition by key order by seq)) chained
 where previous_seq is not null and before is distinct from previous and {is_lately}
 order by key, seq;

-- check drift: each row has the value of its last entry
select coalesce(key || ' entry ' || seq || ' ended at ' || coalesce(after::text, 'null or no row'),
                of_row || ' has no entry')
       || ', the table has '
       || case when of_row is null then 'no row' else coalesce(value::text, 'null') end
  from (select distinct on (key) key, seq, after from {ledger} order by key, seq desc) last
  full join (select {ledger_key}(t) as of_row, {ledger_value}(t) as value from {table} t) rows
    on of_row = key
 where value is distinct from after or key is null
 order by 1;

-- check triggers: each write makes an entry
select format('the trigger %s of %s is missing or disabled', name, of_table)
  from unnest(array['{rows_text}', '{changes_text}', '{repeats_text}', '{close_text}'],
              array['{table_text}', '{table_text}', '{table_text}', '{ledger_text}']) as t(name, of_table)
 where not exists (select from pg_trigger
                    where tgrelid = of_table::regclass and tgname = name and tgenabled in ('O', 'A'));

-- check note: what to know besides
select format('entries: %s, keys: %s, of the value that was there: %s, overlaps that are no forks: %s',
              count(*), count(distinct key), count(*) filter (where before = after),
              coalesce((select string_agg(format('%s %s', number, guard), ', ' order by guard)
                          from (select guard, count(*) as number from {ledger}
                                 where guard is not null group by guard) guards), 'none'))
  from {ledger};
