with recent as (
    (select seq, null::bigint as unit, before, delta, after, version
       from only stock_ledger where sku = $1 order by seq desc limit $2)
    union all
    (select seq, unit, before, delta, after, version
       from unit_ledger where sku = $1 order by seq desc limit $2)
     order by seq desc limit $2
), size as (
    select count(*) < $2 as is_complete from recent
), chain as (
    select unit, before, delta, after,
           coalesce(lag(after) over chain,
                    case when not is_complete then before
                         when unit is null then 0 else 1 end) as previous,
           sum(delta) over chain as running, first_value(before) over chain as first
      from recent, size
    window chain as (partition by unit order by version, seq)
), figures as (
    select coalesce(sum(delta), 0) as total,
           coalesce(min(running) filter (where unit is null), 0) as lowest,
           count(*) filter (where before <> previous or after <> before + delta) as breaks
      from chain
), sold_twice as (
    select coalesce(sum(greatest(0, -lowest)), 0) as units
      from (select min(first + running) as lowest from chain
             where unit is not null group by unit) as u
), of_units as (
    select count(*) > 0 as in_units, count(*) filter (where order_id is null) as free
      from item_units where sku = $1
), forks as (
    select count(*) as forks
      from (select from recent group by version having count(*) > 1) as f
), item as (
    select i.opening, i.restocked, s.*, f.*, forks, is_complete, in_units,
           sold_twice.units as sold_twice,
           case when is_complete then total
                else i.opening + i.restocked - s.sold end as ledger,
           (select coalesce(sum(quantity), 0)::bigint from unsettled_lines u
             where u.sku = i.sku) as unsettled
      from items i, figures f, forks, size, of_units, sold_twice
     cross join lateral (
           select case when in_units
                       then (select coalesce(sum(quantity), 0)::bigint from order_lines
                              where sku = $1 and counts_for is not null)
                       else i.sold end as sold,
                  case when in_units then free else i.stock end as stock) as s
     where i.sku = $1
)
select opening as "opening!", restocked as "restocked!", sold as "sold!",
       stock as "stock!", (stock - ledger)::bigint as "drift!",
       case when in_units then sold_twice
            else greatest(0, total - ledger - lowest, unsettled - stock)
             end::bigint as "oversold!",
       breaks as "breaks!",
       forks as "forks!", unsettled as "unsettled!", is_complete as "is_complete!"
  from item
-- parameters: sku, limit
