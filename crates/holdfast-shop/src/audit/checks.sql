-- The checks of the shop's books: name, rule, and a query for violations, one text per row.
--
-- A ledger is ordered by (sku, version, seq) or (user_id, version, seq). Under every strategy that
-- holds seq grows in the order of version, since an entry takes its number behind the row's lock or
-- under a guard of its version; it also orders entries of the same version (forks). The opening
-- entry has version 0.
--
-- A check that names a table after its rule looks at the rows of that table one by one, and is
-- executed in steps: `checks.rs` replaces `:from` and `:to` with the blocks of the step. The
-- statements of `sequences` are those of `db/sequences.rs`.
--
-- Rows of an order and an item are looked up by the order: `sku || ''` can't use an index. By
-- statistics from when an item had one line, its index would look as good as the key, and read all
-- lines of a hot item for each row.

-- check stock-drift: the stock of each item equals the sum of its ledger
select format('%s: on the shelf %s, by the ledger %s', i.sku, i.stock, coalesce(s.total, 0))
  from items i
  left join (select sku, sum(delta) as total from stock_ledger group by sku) s using (sku)
 where i.kind = 'shop' and i.stock <> coalesce(s.total, 0) order by i.sku;

-- check stock-oversold: no item was sold beyond its stock
select format('%s: %s units that never existed', sku, -min(running)) from (
    select l.sku, sum(l.delta) over (partition by l.sku
                                      order by l.version, l.seq) as running
      from stock_ledger l join items i on i.sku = l.sku and i.kind = 'shop') chain
 group by sku having min(running) < 0 order by sku;

-- check stock-chain: each entry begins with the value at which the previous entry ended, under no lower fence, with a higher seq
select format('%s entry %s: ', sku, seq) || concat_ws(', and ',
              case when before <> previous then format(
                   'the entry before it ended at %s, this one begins at %s',
                   previous, before) end,
              case when seq < previous_seq then format(
                   'the entry before it has the higher seq %s', previous_seq) end,
              case when after <> before + delta then format(
                   'it says that %s and %s make %s', before, delta, after) end,
              case when fence < highest then format(
                   'its fence is %s, and one before it was %s', fence, highest) end) from (
    select l.sku, l.seq, l.version, l.before, l.delta, l.after, l.fence,
           max(l.fence) over entries as highest,
           lag(l.after, 1, 0::bigint) over entries as previous,
           lag(l.seq) over entries as previous_seq
      from stock_ledger l join items i on i.sku = l.sku and i.kind = 'shop'
    window entries as (partition by l.sku order by l.version, l.seq)) chain
 where before <> previous or after <> before + delta or fence < highest or seq < previous_seq
 order by sku, version, seq;

-- check stock-forks: no two entries were computed from the same read
select format('%s version %s: entries %s', l.sku, l.version,
              string_agg(l.seq::text, ', ' order by l.seq))
  from stock_ledger l join items i on i.sku = l.sku and i.kind = 'shop'
 group by l.sku, l.version having count(*) > 1 order by 1;

-- check stock-opening: each ledger begins with one opening entry
select format('%s: %s opening entries, the first entry says %s', i.sku,
              count(*) filter (where l.reason = 'opening'),
              (array_agg(l.reason order by l.version, l.seq))[1])
  from items i left join stock_ledger l on l.sku = i.sku
 where i.kind = 'shop' group by i.sku
having count(*) filter (where l.reason = 'opening') <> 1
    or (array_agg(l.reason order by l.version, l.seq))[1] <> 'opening' order by 1;

-- check running-sums: the running sums of each item equal the sums of its ledger and its orders
select format('%s: opening %s, restocked %s, sold %s; by the ledger %s, %s and %s; in orders %s',
              i.sku, i.opening, i.restocked, i.sold, coalesce(e.opening, 0),
              coalesce(e.restocked, 0), coalesce(e.sold, 0), coalesce(l.sold, 0))
  from items i
  left join (select sku, sum(delta) filter (where reason = 'opening') as opening,
                    sum(delta) filter (where order_id is null and reason <> 'opening') as restocked,
                    -sum(delta) filter (where order_id is not null) as sold
               from stock_ledger group by sku) e using (sku)
  left join (select l.sku, sum(l.quantity) as sold
               from order_lines l join orders o on o.id = l.order_id
              where o.status in ('pending', 'paid') group by l.sku) l using (sku)
 where i.kind = 'shop'
   and (i.opening <> coalesce(e.opening, 0) or i.restocked <> coalesce(e.restocked, 0)
        or i.sold <> coalesce(e.sold, 0) or i.sold <> coalesce(l.sold, 0))
 order by i.sku;

-- check row-versions: each item and each account is past the versions of its ledger, and not below its fences
select format('%s: version %s, fence %s; in the ledger %s and %s', i.sku, i.version, i.fence,
              e.version, e.fence)
  from items i
  join (select sku, max(version) as version, max(fence) as fence
          from stock_ledger group by sku) e using (sku)
 where i.kind = 'shop' and (i.version <= e.version or i.fence < e.fence)
union all
select format('%s: version %s, fence %s; in the ledger %s and %s', u.name, a.version, a.fence,
              e.version, e.fence)
  from accounts a join users u on u.id = a.user_id
  join (select user_id, max(version) as version, max(fence) as fence
          from balance_ledger group by user_id) e on e.user_id = a.user_id
 where a.kind = 'shop' and (a.version <= e.version or a.fence < e.fence)
 order by 1;

-- check order-lines: each order line took its units once, with the entry that it names, and returned them once if its order was cancelled or refunded
-- blocks of order_lines
select format('order %s (%s), %s: quantity %s, entry %s: %s, returned: %s', l.order_id, o.status,
              l.sku, l.quantity, l.entry_seq, coalesce(e.delta::text, 'none'),
              coalesce(returns.entries, 'none'))
  from order_lines l
  join orders o on o.id = l.order_id
  join items i on i.sku = l.sku and i.kind = 'shop'
  left join stock_ledger e on e.sku = l.sku and e.seq = l.entry_seq
                          and e.order_id = l.order_id and e.reason = 'order'
 cross join lateral (
       select count(*) as number,
              count(*) filter (where r.delta = l.quantity
                  and (o.status = 'cancelled' and r.reason in ('cancel', 'expiry')
                    or o.status = 'refunded' and r.reason = 'refund')) as matching,
              string_agg(r.reason || ' ' || r.delta, ', ' order by r.version, r.seq) as entries
         from stock_ledger r
        where r.order_id = l.order_id and r.sku || '' = l.sku and r.reason <> 'order') returns
 cross join lateral (select (o.status in ('cancelled', 'refunded'))::int as number) required
 where l.ctid >= :from and l.ctid < :to
   and (e.delta is distinct from -l.quantity
        or returns.number <> required.number or returns.matching <> required.number)
 order by 1;

-- check lines-counted: each order line counts for its buyer while its order is pending or paid
-- blocks of order_lines
select format('order %s (%s), %s: it counts for %s', o.id, o.status, l.sku,
              case when l.counts_for is null then 'nobody'
                   when l.counts_for = o.user_id then 'its buyer'
                   else 'somebody else' end)
  from order_lines l
  join orders o on o.id = l.order_id
  join items i on i.sku = l.sku and i.kind = 'shop'
 where l.ctid >= :from and l.ctid < :to and l.counts_for is distinct from
       case when o.status in ('pending', 'paid') then o.user_id end
 order by 1;

-- check customer-limits: no user bought more of an item than the limit at that time
-- The ledger contains the order of sales and returns, so each line is checked against what its
-- buyer had, and against the limit, at the time of its sale.
select format('order %s, %s: it made %s for its buyer, and the limit was %s', order_id,
              sku, held, limit_per_user) from (
    select l.order_id, l.sku, l.limit_per_user, e.reason,
           -sum(e.delta) over (partition by l.sku, o.user_id
                              order by e.version, e.seq) as held
      from order_lines l
      join orders o on o.id = l.order_id
      join items i on i.sku = l.sku and i.kind = 'shop'
      join stock_ledger e on e.order_id = l.order_id and e.sku = l.sku
     where l.sku in (select sku from order_lines where limit_per_user is not null)) sold
 where reason = 'order' and held > limit_per_user order by 1;

-- check stock-entries: each entry has its item, and if it names an order, the line of that order; a line has one sale
-- blocks of stock_ledger
select format('%s entry %s (%s %s): ', e.sku, e.seq, e.reason, e.delta)
       || case when i.sku is null then 'there is no such item'
               when l.order_id is null
               then format('order %s has no such line', coalesce(e.order_id::text, '–'))
               else format('the line of order %s names entry %s', e.order_id, l.entry_seq) end
  from only stock_ledger e
  left join items i on i.sku = e.sku
  left join order_lines l on l.order_id = e.order_id and l.sku || '' = e.sku
 where e.ctid >= :from and e.ctid < :to
   and (i.sku is null
        or i.kind = 'shop' and l.order_id is null
       and (e.order_id is not null or e.reason in ('order', 'cancel', 'refund', 'expiry'))
        or i.kind = 'shop' and e.reason = 'order' and l.entry_seq <> e.seq)
 order by e.sku, e.version, e.seq;

-- check unit-entries: only items of the lab have entries of units
-- blocks of unit_ledger
select format('%s entry %s of unit %s: ', e.sku, e.seq, e.unit)
       || case when i.sku is null then 'there is no such item' else 'it is the shop''s' end
  from unit_ledger e
  left join items i on i.sku = e.sku
 where e.ctid >= :from and e.ctid < :to and i.kind is distinct from 'lab'
 order by e.sku, e.seq;

-- check order-references: each order has its user
-- blocks of orders
select format('order %s: there is no user %s', o.id, o.user_id)
  from orders o
 where o.ctid >= :from and o.ctid < :to
   and not exists (select from users u where u.id = o.user_id)
 order by 1;

-- check line-references: each order line has its order and its item
-- blocks of order_lines
select format('order %s, %s: there is no such ', l.order_id, l.sku)
       || case when o.id is null then 'order' else 'item' end
  from order_lines l
  left join orders o on o.id = l.order_id
  left join items i on i.sku = l.sku
 where l.ctid >= :from and l.ctid < :to and (o.id is null or i.sku is null)
 order by 1;

-- check order-totals: the total of each order equals the sum of its lines
-- blocks of orders
select format('order %s: total %s, lines %s', o.id, o.total_cents, coalesce(lines.total, 0))
  from orders o
 cross join lateral (
       select sum(l.quantity * l.unit_price_cents) as total
         from order_lines l where l.order_id = o.id) lines
 where o.ctid >= :from and o.ctid < :to and o.total_cents is distinct from lines.total
 order by 1;

-- check payments: each order has exactly the payment and the refund that its status requires, on its buyer's account or, of lab items, lab account
-- blocks of orders
select format('order %s (%s, total %s): entries %s', o.id, o.status, o.total_cents,
              coalesce(entries.listed, 'none'))
  from orders o
  left join users u on u.lab_account_of = o.user_id
 cross join lateral (
       select coalesce(bool_and(i.kind = 'lab'), false) as of_lab
         from order_lines l join items i on i.sku = l.sku where l.order_id = o.id) lines
 cross join lateral (
       select count(*) as number,
              count(*) filter (where e.reason = 'payment' and e.delta = -o.total_cents
                                 and of_payer) as payments,
              count(*) filter (where e.reason = 'refund' and e.delta = o.total_cents
                                 and of_payer) as refunds,
              string_agg(e.reason || ' ' || e.delta
                         || case when of_payer then '' else ' of another account' end,
                         ', ' order by e.user_id, e.version, e.seq) as listed
         from balance_ledger e
        cross join lateral (
              select e.user_id is not distinct from
                     case when lines.of_lab then u.id else o.user_id end as of_payer) payer
        where e.order_id = o.id) entries
 cross join lateral (select (o.status in ('paid', 'refunded'))::int as payments,
                            (o.status = 'refunded')::int as refunds) required
 where o.ctid >= :from and o.ctid < :to
   and (entries.payments <> required.payments or entries.refunds <> required.refunds
        or entries.number <> required.payments + required.refunds)
 order by 1;

-- check balance-entries: each entry is the payment or the refund of an order of its user, or the opening of a lab account, a top-up or welcome credit
select format('%s entry %s (%s %s): order %s', u.name, e.seq, e.reason, e.delta,
              case when e.order_id is null then 'none'
                   when o.id is null then e.order_id::text || ' is not there'
                   else e.order_id::text || case when o.user_id = owner.id then ''
                        else ' is somebody else''s' end end)
  from balance_ledger e
  join users u on u.id = e.user_id
 cross join lateral (select coalesce(u.lab_account_of, u.id) as id) owner
  left join orders o on o.id = e.order_id
 where (e.order_id is null)
       <> (e.reason = any(case when u.lab_account_of is null then '{top-up,welcome}'
                               else '{lab,top-up}' end::text[]))
    or o.user_id is distinct from owner.id and e.order_id is not null
 order by u.name, e.version, e.seq;

-- check counted-apart: only items and accounts of the lab are counted separately
select format('item %s is marked as the lab''s', sku) from items
 where kind = 'lab' and sku !~ '^lab-[0-9a-f]{32}$'
union all
select format('account of %s is marked as the lab''s, and is none', u.name)
  from accounts a join users u on u.id = a.user_id
 where a.kind = 'lab' and (u.lab_account_of is null or u.name not like 'lab-%')
union all
select format('lab account %s is marked as the shop''s', u.name)
  from accounts a join users u on u.id = a.user_id
 where a.kind = 'shop' and u.lab_account_of is not null
 order by 1;

-- check balance-drift: the balance of each account equals the sum of its ledger
select format('%s: balance %s cents, by the ledger %s', u.name, a.balance_cents,
              coalesce(s.total, 0))
  from accounts a join users u on u.id = a.user_id
  left join (select user_id, sum(delta) as total from balance_ledger group by user_id) s
         on s.user_id = a.user_id
 where a.kind = 'shop' and a.balance_cents <> coalesce(s.total, 0) order by u.name;

-- check balance-chain: each entry begins with the value at which the previous entry ended, under no lower fence, with a higher seq
select format('%s entry %s: ', u.name, seq) || concat_ws(', and ',
              case when before <> previous then format(
                   'the entry before it ended at %s cents, this one begins at %s',
                   previous, before) end,
              case when seq < previous_seq then format(
                   'the entry before it has the higher seq %s', previous_seq) end,
              case when after <> before + delta then format(
                   'it says that %s and %s cents make %s', before, delta, after) end,
              case when fence < highest then format(
                   'its fence is %s, and one before it was %s', fence, highest) end) from (
    select l.user_id, l.seq, l.version, l.before, l.delta, l.after, l.fence,
           max(l.fence) over entries as highest,
           lag(l.after, 1, 0::bigint) over entries as previous,
           lag(l.seq) over entries as previous_seq
      from balance_ledger l
      join accounts a on a.user_id = l.user_id and a.kind = 'shop'
    window entries as (partition by l.user_id order by l.version, l.seq)) chain
  join users u on u.id = chain.user_id
 where before <> previous or after <> before + delta or fence < highest or seq < previous_seq
 order by u.name, version, seq;

-- check balance-forks: no two entries were computed from the same read
select format('%s version %s: entries %s', u.name, l.version,
              string_agg(l.seq::text, ', ' order by l.seq))
  from balance_ledger l
  join accounts a on a.user_id = l.user_id and a.kind = 'shop'
  join users u on u.id = l.user_id
 group by u.name, l.user_id, l.version having count(*) > 1 order by 1;

-- check top-ups: each top-up has its entry, and each such entry its top-up
select format('%s: topped up %s, by the ledger %s', u.name, coalesce(t.total, 0),
              coalesce(e.total, 0))
  from accounts a join users u on u.id = a.user_id
  left join (select user_id, sum(amount_cents) as total, count(*) as n from top_ups
              group by user_id) t on t.user_id = a.user_id
  left join (select user_id, sum(delta) as total, count(*) as n from balance_ledger
              where reason in ('top-up', 'welcome') group by user_id) e on e.user_id = a.user_id
 where a.kind = 'shop'
   and (coalesce(t.total, 0) <> coalesce(e.total, 0) or coalesce(t.n, 0) <> coalesce(e.n, 0))
 order by u.name;

-- check money-conserved: balances plus spending equal the money paid in
-- Without the lab: what a lab account paid is not spent in the shop.
select format('put in %s, on accounts %s, spent %s', came, held, spent) from (
    select (select coalesce(sum(t.amount_cents), 0) from top_ups t
              join accounts a on a.user_id = t.user_id and a.kind = 'shop') as came,
           (select coalesce(sum(balance_cents), 0) from accounts where kind = 'shop') as held,
           (select coalesce(sum(o.total_cents), 0) from orders o
             where o.status = 'paid' and not exists (
                   select from balance_ledger e
                     join accounts a on a.user_id = e.user_id and a.kind = 'lab'
                    where e.order_id = o.id and e.reason = 'payment')) as spent) sums
 where came <> held + spent;

-- check nothing-negative: no stock, balance, quantity or total is below zero
select format('item %s: stock %s', sku, stock) from items where stock < 0 and kind = 'shop'
union all select format('account %s: %s', user_id, balance_cents) from accounts
 where balance_cents < 0
union all select format('order %s: total %s', id, total_cents) from orders
 where total_cents < 0
union all select format('order %s, %s: quantity %s', order_id, sku, quantity)
  from order_lines where quantity <= 0
union all select format('%s entry %s: %s → %s', l.sku, seq, before, after)
  from stock_ledger l join items i on i.sku = l.sku and i.kind = 'shop'
 where before < 0 or after < 0
union all select format('balance entry %s: %s → %s', seq, before, after)
  from balance_ledger where before < 0 or after < 0;

-- check key-records: each order has the record of its idempotency key
-- blocks of orders
select format('order %s has no key record', o.id)
  from orders o
  left join idempotency i
         on i.id = encode(substring(sha256(convert_to(
              concat_ws(' ', o.user_id, 'POST', '/api/orders', o.token), 'UTF8')) for 16), 'hex')::uuid
 where o.ctid >= :from and o.ctid < :to and i.order_id is distinct from o.id
 order by 1;

-- check stored-responses: each key record has its own id, and is about its order or its top-up
-- blocks of idempotency
select format('key %s of user %s: ', i.key, i.user_id) || concat_ws(', and ',
              case when i.id <> own.id then 'its record has another key''s id' end,
              case when i.status not in (200, 201) or o.id is not null and i.status <> 201
                   then 'its status is ' || i.status end,
              case when i.path = '/api/orders' and o.id is null then 'no order has it' end,
              case when i.path <> '/api/orders' and i.order_id is not null
                   then 'it placed no order, and names one' end,
              case when position(convert_to('"id":"' || o.id || '"', 'UTF8') in i.body) = 0
                   then 'the response is not about order ' || o.id end,
              case when i.path = '/api/me/top-ups' and t.id is null then 'no top-up has it' end)
  from idempotency i
  left join orders o on o.id = i.order_id and o.user_id = i.user_id and o.token = i.key
  left join top_ups t on t.user_id = i.user_id and t.token = i.key
 cross join lateral (
       select encode(substring(sha256(convert_to(
              concat_ws(' ', i.user_id, i.method, i.path, i.key), 'UTF8')) for 16), 'hex')::uuid as id) own
 where i.ctid >= :from and i.ctid < :to
   and (i.id <> own.id or i.status not in (200, 201)
        or i.path = '/api/orders' and i.status <> 201
        or (i.path = '/api/orders') <> (i.order_id is not null)
        or i.order_id is not null and o.id is null
        or position(convert_to('"id":"' || o.id || '"', 'UTF8') in i.body) = 0
        or i.path = '/api/me/top-ups' and t.id is null)
 order by 1;

-- check sequences: the next number of each sequence is above those of its table
-- sequences
