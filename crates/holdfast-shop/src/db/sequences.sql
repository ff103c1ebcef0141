-- Each column of the shop's tables that takes its numbers from a sequence, by the catalogue: one that
-- owns its sequence (serial, identity), or whose default reads it.
with shop as (
    select relnamespace, relowner from pg_class where oid = to_regclass('_sqlx_migrations')),
numbered as (
    select objid as sequence, refobjid as of_table, refobjsubid as of_column
      from pg_depend
     where classid = 'pg_class'::regclass and refclassid = 'pg_class'::regclass
       and refobjsubid > 0 and deptype in ('a', 'i')
     union
    select d.refobjid, a.adrelid, a.adnum
      from pg_depend d join pg_attrdef a on a.oid = d.objid
     where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass)
select n.sequence::regclass::text as sequence, n.of_table::regclass::text as of_table,
       quote_ident(c.attname) as of_column,
       -- The first column of an index in which this one is the second, unless one begins with it.
       (select quote_ident(prefix.attname)
          from pg_index i
          join pg_attribute prefix on prefix.attrelid = i.indrelid and prefix.attnum = i.indkey[0]
         where i.indrelid = n.of_table and i.indisvalid and i.indpred is null
           and i.indkey[1] = n.of_column and prefix.attnotnull
           and not exists (select from pg_index direct
                            where direct.indrelid = i.indrelid and direct.indisvalid
                              and direct.indpred is null and direct.indkey[0] = n.of_column)
         limit 1) as index_prefix
  from numbered n
  join shop on true
  join pg_class s on s.oid = n.sequence and s.relkind = 'S'
       and (s.relnamespace, s.relowner) = (shop.relnamespace, shop.relowner)
  join pg_sequence p on p.seqrelid = n.sequence and p.seqincrement > 0
  join pg_attribute c on c.attrelid = n.of_table and c.attnum = n.of_column
 order by 1
