//! The ways to forge the books, and the checks that find each.

/// A way to forge the books, and the checks that must fail because of it.
pub struct Forgery {
    pub what: &'static str,
    pub sql: &'static str,
    pub caught_by: &'static [&'static str],
}

pub const FORGERIES: [Forgery; 40] = [
    Forgery {
        what: "a unit vanishes from the shelf",
        sql: "update items set stock = stock - 1 where sku = 'deadbolt'",
        caught_by: &["stock-drift"],
    },
    Forgery {
        what: "a unit appears on the shelf",
        sql: "update items set stock = stock + 1 where sku = 'deadbolt'",
        caught_by: &["stock-drift"],
    },
    Forgery {
        what: "a sale is dropped from the ledger",
        sql: "delete from stock_ledger where seq = (select max(seq) from stock_ledger where sku = 'key-ring' and reason = 'order')",
        caught_by: &["stock-drift", "stock-chain", "order-lines"],
    },
    Forgery {
        what: "a sale is doubled",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, order_id, request_id)
              select sku, before, delta, after, version, reason, order_id, request_id from stock_ledger
               where reason = 'order' limit 1",
        caught_by: &["stock-drift", "stock-chain", "stock-forks", "order-lines"],
    },
    Forgery {
        what: "an entry's delta is another",
        sql: "update stock_ledger set delta = delta - 1, after = after - 1
               where seq = (select max(seq) from stock_ledger where sku = 'key-ring' and reason = 'order')",
        caught_by: &["stock-drift", "stock-chain", "order-lines"],
    },
    Forgery {
        what: "before and after are shifted, the sum stays",
        sql: "update stock_ledger set before = before + 5, after = after + 5
               where seq = (select max(seq) from stock_ledger where sku = 'key-ring' and reason = 'order')",
        caught_by: &["stock-chain"],
    },
    Forgery {
        what: "an entry does not add up",
        sql: "alter table stock_ledger drop constraint stock_ledger_sum;
              update stock_ledger set after = after + 1
               where seq = (select max(seq) from stock_ledger where sku = 'key-ring')",
        caught_by: &["stock-chain"],
    },
    Forgery {
        what: "two entries swap their places",
        sql: "update stock_ledger a set before = b.before, after = b.after, delta = b.delta,
                     reason = b.reason || ' ' , order_id = null
                from stock_ledger b
               where a.seq = (select min(seq) from stock_ledger where sku = 'key-ring' and reason = 'order')
                 and b.seq = (select max(seq) from stock_ledger where sku = 'key-ring')",
        caught_by: &["stock-chain", "order-lines"],
    },
    Forgery {
        what: "two entries claim the same read",
        sql: "update stock_ledger set version = version - 1
               where seq = (select max(seq) from stock_ledger where sku = 'key-ring')",
        caught_by: &["stock-forks"],
    },
    Forgery {
        what: "a lost update: both read the same, the chain forks, the shelf keeps one unit too many",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, -1, stock - 1, version, 'gone', gen_random_uuid() from items where sku = 'deadbolt';
              insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, -1, stock - 1, version, 'gone', gen_random_uuid() from items where sku = 'deadbolt';
              update items set stock = stock - 1 where sku = 'deadbolt'",
        caught_by: &["stock-drift", "stock-chain", "stock-forks"],
    },
    Forgery {
        what: "more is sold than ever was there",
        sql: "alter domain units drop constraint units_not_negative;
              insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, -stock - 3, -3, version, 'gone', gen_random_uuid() from items where sku = 'last-lantern';
              alter domain item_stock drop constraint items_stock_range;
              update items set stock = -3 where sku = 'last-lantern'",
        caught_by: &["stock-oversold", "nothing-negative"],
    },
    Forgery {
        what: "an item without an opening",
        sql: "insert into items (sku, name, price_cents, stock) values ('smuggled', 'Smuggled', 1, 0)",
        caught_by: &["stock-opening"],
    },
    Forgery {
        what: "an item is opened twice",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, 4, stock + 4, version, 'opening', gen_random_uuid() from items where sku = 'deadbolt';
              update items set stock = stock + 4 where sku = 'deadbolt'",
        caught_by: &["stock-opening"],
    },
    Forgery {
        what: "an item counts units as restocked and sold that were neither",
        sql: "update items set restocked = restocked + 1, sold = sold + 1 where sku = 'deadbolt'",
        caught_by: &["running-sums"],
    },
    Forgery {
        what: "a line's quantity is another",
        sql: "update order_lines set quantity = quantity + 1
               where ctid = (select min(ctid) from order_lines)",
        caught_by: &["order-lines", "order-totals"],
    },
    Forgery {
        what: "a line's price is another",
        sql: "update order_lines set unit_price_cents = 1 where ctid = (select min(ctid) from order_lines)",
        caught_by: &["order-totals"],
    },
    Forgery {
        what: "a line is gone",
        sql: "delete from order_lines where ctid = (select min(ctid) from order_lines)",
        caught_by: &["stock-entries", "order-totals"],
    },
    Forgery {
        what: "an order of nobody",
        sql: "update orders set user_id = gen_random_uuid() where status = 'cancelled'",
        caught_by: &["order-references"],
    },
    Forgery {
        what: "a line of an order that is not there",
        sql: "insert into order_lines (order_id, sku, quantity, unit_price_cents, entry_seq)
              values (gen_random_uuid(), 'key-ring', 1, 1, 1)",
        caught_by: &["order-references"],
    },
    Forgery {
        what: "a line of an item that is not there",
        sql: "update order_lines set sku = 'no-such-item'
               where ctid = (select min(ctid) from order_lines)",
        caught_by: &["order-references"],
    },
    Forgery {
        what: "a line counts for somebody else",
        sql: "update order_lines l set counts_for = (select id from users where name = 'carol')
                from orders o where o.id = l.order_id and o.status = 'paid'",
        caught_by: &["lines-counted"],
    },
    Forgery {
        what: "a paid line counts for nobody, so its buyer may have as many again",
        sql: "update order_lines l set counts_for = null
                from orders o where o.id = l.order_id and o.status = 'paid'",
        caught_by: &["lines-counted"],
    },
    Forgery {
        what: "a line was sold under a limit that its buyer had gone beyond",
        sql: "update order_lines set limit_per_user = 5 where sku = 'key-ring'",
        caught_by: &["customer-limits"],
    },
    Forgery {
        what: "units of an item that there is not",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              values ('no-such-item', 0, 5, 5, 1, 'found', gen_random_uuid())",
        caught_by: &["stock-entries"],
    },
    Forgery {
        what: "a sale names no order",
        sql: "update stock_ledger set order_id = null where seq = (select max(seq) from stock_ledger where reason = 'order')",
        caught_by: &["stock-entries", "order-lines"],
    },
    Forgery {
        what: "a cancelled order is pending again",
        sql: "update orders set status = 'pending' where status = 'cancelled'",
        caught_by: &["order-lines", "lines-counted"],
    },
    Forgery {
        what: "a pending order was paid without money",
        sql: "update orders set status = 'paid', paid_at = now() where status = 'pending'",
        caught_by: &["payments", "money-conserved"],
    },
    Forgery {
        what: "a payment is less than the order",
        sql: "update balance_ledger set delta = delta + 1, after = after + 1
               where seq = (select max(seq) from balance_ledger where reason = 'payment')",
        caught_by: &["payments", "balance-drift", "balance-chain"],
    },
    Forgery {
        what: "money appears on an account",
        sql: "update accounts set balance_cents = balance_cents + 1
               where user_id = (select id from users where name = 'carol')",
        caught_by: &["balance-drift", "money-conserved"],
    },
    Forgery {
        what: "money moves from one account to another, the sum stays",
        sql: "update accounts set balance_cents = balance_cents + case name when 'carol' then 1 else -1 end
                from users where id = user_id and name in ('carol', 'admin')",
        caught_by: &["balance-drift"],
    },
    Forgery {
        what: "money moves from one account to another, and both ledgers agree",
        sql: "with moved as (
                  update accounts set balance_cents = balance_cents
                         + case name when 'carol' then 5 else -5 end
                    from users where id = user_id and name in ('carol', 'admin')
                  returning user_id, balance_cents, version, name)
              insert into balance_ledger (user_id, before, delta, after, version, reason, request_id)
              select user_id, balance_cents - case name when 'carol' then 5 else -5 end,
                     case name when 'carol' then 5 else -5 end, balance_cents, version - 1,
                     case name when 'carol' then 'refund' else 'payment' end, gen_random_uuid()
                from moved",
        caught_by: &["balance-entries"],
    },
    Forgery {
        what: "a payment is somebody else's",
        sql: "update balance_ledger set order_id = (select id from orders o
                      where o.user_id <> balance_ledger.user_id and o.status = 'pending' limit 1)
               where seq = (select min(seq) from balance_ledger where reason = 'payment')",
        caught_by: &["balance-entries", "payments"],
    },
    Forgery {
        what: "an account of the shop is counted apart",
        sql: "update accounts set kind = 'lab'
               where user_id = (select id from users where name = 'bob')",
        caught_by: &["counted-apart"],
    },
    Forgery {
        what: "the books are counted apart",
        sql: "update items set kind = 'lab'; update accounts set kind = 'lab'",
        caught_by: &["counted-apart"],
    },
    Forgery {
        what: "an answer that is no text at all",
        sql: "update idempotency set body = '\\xff' where path = '/api/orders'",
        caught_by: &["key-records"],
    },
    Forgery {
        what: "a key could be used a second time",
        sql: "update idempotency set id = gen_random_uuid()
               where key = (select min(key) from idempotency)",
        caught_by: &["key-records"],
    },
    Forgery {
        what: "two payments claim the same read",
        sql: "update balance_ledger set version = version - 1 where seq = (select max(seq) from balance_ledger)",
        caught_by: &["balance-forks"],
    },
    Forgery {
        what: "money came in that nobody put in",
        sql: "insert into balance_ledger (user_id, before, delta, after, version, reason, request_id)
              select user_id, balance_cents, 5, balance_cents + 5, version, 'top-up', gen_random_uuid()
                from accounts join users on id = user_id where name = 'carol';
              update accounts set balance_cents = balance_cents + 5
               where user_id = (select id from users where name = 'carol')",
        caught_by: &["top-ups", "money-conserved"],
    },
    Forgery {
        what: "a balance below zero, with a ledger that agrees",
        sql: "alter domain cents drop constraint cents_not_negative;
              alter domain account_balance drop constraint accounts_balance_range;
              insert into balance_ledger (user_id, before, delta, after, version, reason, request_id)
              select user_id, balance_cents, -balance_cents - 1, -1, version, 'payment', gen_random_uuid()
                from accounts join users on id = user_id where name = 'carol';
              update accounts set balance_cents = -1
               where user_id = (select id from users where name = 'carol')",
        caught_by: &["nothing-negative", "money-conserved"],
    },
    Forgery {
        what: "an answer speaks of an order that is not there",
        sql: "update idempotency set body = convert_to(replace(convert_from(body, 'UTF8'), '-7', '-6'), 'UTF8')
               where path = '/api/orders'",
        caught_by: &["key-records"],
    },
];

pub const LAB_FORGERIES: [Forgery; 2] = [
    Forgery {
        what: "a user pays for the lab",
        sql: "update balance_ledger e set user_id = o.user_id from orders o
               where o.id = e.order_id and o.status = 'paid' and e.user_id <> o.user_id",
        caught_by: &["payments"],
    },
    Forgery {
        what: "the lab pays for the shop",
        sql: "update balance_ledger e set user_id = u.id from orders o, users u
               where o.id = e.order_id and o.status = 'paid' and u.lab_account_of = e.user_id",
        caught_by: &["payments", "balance-drift", "money-conserved"],
    },
];
