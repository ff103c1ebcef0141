//! Forgeries of the database, and the checks that detect each.

/// A forged column: `update TABLE set COLUMN = VALUE where ROWS`, and a check that must fail.
pub struct ForgedColumn {
    pub column: &'static str,
    pub value: &'static str,
    pub rows: &'static str,
    pub caught_by: &'static str,
}

const fn forged(
    column: &'static str,
    value: &'static str,
    rows: &'static str,
    caught_by: &'static str,
) -> ForgedColumn {
    ForgedColumn { column, value, rows, caught_by }
}

const A_LINE: &str = "ctid = (select min(ctid) from order_lines)";
const A_SALE: &str = "ctid = (select min(ctid) from stock_ledger where reason = 'order')";
const LAST_ENTRY: &str = "seq = (select max(seq) from stock_ledger where sku = 'key-ring')";
const BOB: &str = "user_id = (select id from users where name = 'bob')";
const A_PAYMENT: &str = "seq = (select min(seq) from balance_ledger where reason = 'payment')";
const BOBS_LAST: &str = "seq = (select max(seq) from balance_ledger
                                 where user_id = (select id from users where name = 'bob'))";
const A_KEY: &str = "ctid = (select min(ctid) from idempotency where path = '/api/orders')";

/// Each column that a check covers.
pub const COLUMNS: [ForgedColumn; 59] = [
    forged("users.id", "gen_random_uuid()", "name = 'alice'", "order-references"),
    forged("users.name", "'mallory'", "lab_account_of is not null", "counted-apart"),
    forged("users.nickname", "'Zoe'", "nickname = 'Mia'", "nicknames"),
    forged("users.folded_nickname", "'zoe'", "nickname = 'Mia'", "nicknames"),
    forged("users.lab_account_of", "null", "lab_account_of is not null", "counted-apart"),
    forged("accounts.user_id", "gen_random_uuid()", BOB, "money-conserved"),
    forged("accounts.balance_cents", "balance_cents + 1", BOB, "balance-drift"),
    forged("accounts.version", "1", BOB, "row-versions"),
    forged("accounts.fence", "0", BOB, "row-versions"),
    forged("accounts.kind", "'lab'", BOB, "counted-apart"),
    forged("items.sku", "'renamed'", "sku = 'deadbolt'", "line-references"),
    forged("items.stock", "stock - 1", "sku = 'deadbolt'", "stock-drift"),
    forged("items.version", "1", "sku = 'deadbolt'", "row-versions"),
    forged("items.fence", "0", "sku = 'deadbolt'", "row-versions"),
    forged("items.kind", "'lab'", "sku = 'deadbolt'", "counted-apart"),
    forged("items.opening", "opening + 1", "sku = 'deadbolt'", "running-sums"),
    forged("items.restocked", "restocked + 1", "sku = 'deadbolt'", "running-sums"),
    forged("items.sold", "sold + 1", "sku = 'deadbolt'", "running-sums"),
    forged("orders.id", "gen_random_uuid()", "status = 'cancelled'", "line-references"),
    forged("orders.user_id", "gen_random_uuid()", "status = 'cancelled'", "order-references"),
    forged("orders.status", "'pending'", "status = 'cancelled'", "order-lines"),
    forged("orders.total_cents", "total_cents + 1", "status = 'paid'", "order-totals"),
    forged("orders.token", "'0123456789abcdef'", "status = 'cancelled'", "key-records"),
    forged("order_lines.order_id", "gen_random_uuid()", A_LINE, "line-references"),
    forged("order_lines.sku", "'no-such-item'", A_LINE, "line-references"),
    forged("order_lines.quantity", "quantity + 1", A_LINE, "order-lines"),
    forged("order_lines.unit_price_cents", "unit_price_cents + 1", A_LINE, "order-totals"),
    forged("order_lines.counts_for", "null", "counts_for is not null", "lines-counted"),
    forged("order_lines.limit_per_user", "5", "sku = 'key-ring'", "customer-limits"),
    forged("order_lines.entry_seq", "entry_seq + 1000", A_LINE, "order-lines"),
    forged("stock_ledger.seq", "seq + 1000", A_SALE, "order-lines"),
    forged("stock_ledger.sku", "'no-such-item'", A_SALE, "stock-entries"),
    forged("stock_ledger.before", "before + 1", LAST_ENTRY, "stock-chain"),
    forged("stock_ledger.delta", "delta - 1", LAST_ENTRY, "stock-drift"),
    forged("stock_ledger.after", "after + 1", LAST_ENTRY, "stock-chain"),
    forged("stock_ledger.version", "version - 1", LAST_ENTRY, "stock-forks"),
    forged("stock_ledger.reason", "'found'", "reason = 'opening'", "stock-opening"),
    forged("stock_ledger.order_id", "null", A_SALE, "stock-entries"),
    forged("stock_ledger.fence", "0", LAST_ENTRY, "stock-chain"),
    forged("balance_ledger.seq", "seq - 1000", BOBS_LAST, "balance-chain"),
    forged("balance_ledger.user_id", "gen_random_uuid()", A_PAYMENT, "balance-drift"),
    forged("balance_ledger.before", "before + 1", BOBS_LAST, "balance-chain"),
    forged("balance_ledger.delta", "delta + 1", BOBS_LAST, "balance-drift"),
    forged("balance_ledger.after", "after + 1", BOBS_LAST, "balance-chain"),
    forged("balance_ledger.version", "version - 1", BOBS_LAST, "balance-forks"),
    forged("balance_ledger.reason", "'top-up'", A_PAYMENT, "balance-entries"),
    forged("balance_ledger.order_id", "null", A_PAYMENT, "payments"),
    forged("balance_ledger.fence", "0", BOBS_LAST, "balance-chain"),
    forged("top_ups.user_id", "(select id from users where name = 'carol')", BOB, "top-ups"),
    forged("top_ups.token", "'forged-' || id", BOB, "stored-responses"),
    forged("top_ups.amount_cents", "amount_cents + 1", BOB, "top-ups"),
    forged("idempotency.id", "gen_random_uuid()", A_KEY, "key-records"),
    forged("idempotency.user_id", "gen_random_uuid()", A_KEY, "stored-responses"),
    forged("idempotency.method", "'PUT'", A_KEY, "stored-responses"),
    forged("idempotency.path", "'/api/other'", A_KEY, "stored-responses"),
    forged("idempotency.key", "'0123456789abcdef'", A_KEY, "stored-responses"),
    forged("idempotency.status", "200", A_KEY, "stored-responses"),
    forged("idempotency.body", "'\\xff'", A_KEY, "stored-responses"),
    forged("idempotency.order_id", "gen_random_uuid()", A_KEY, "key-records"),
];

/// The other columns, and why no check covers them.
pub const UNCHECKED_COLUMNS: [(&str, &str); 25] = [
    ("users.password_hash", RIGHTS),
    ("users.admin", RIGHTS),
    ("users.disabled_at", RIGHTS),
    ("users.created_at", TIME),
    ("items.name", SETTING),
    ("items.name_zh", SETTING),
    ("items.price_cents", SETTING),
    ("items.limit_per_user", SETTING),
    ("items.description", SETTING),
    ("items.hidden", SETTING),
    ("items.may_go_below_zero", "of items of the lab alone"),
    ("items.created_at", TIME),
    ("orders.created_at", TIME),
    ("orders.expires_at", TIME),
    ("orders.paid_at", TIME),
    ("order_lines.name", SOLD_NAME),
    ("order_lines.name_zh", SOLD_NAME),
    ("stock_ledger.request_id", LOG),
    ("stock_ledger.at", TIME),
    ("balance_ledger.request_id", LOG),
    ("balance_ledger.at", TIME),
    ("top_ups.id", "nothing refers to it"),
    ("top_ups.created_at", TIME),
    ("idempotency.fingerprint", "the request is not stored; a forged one rejects a repetition"),
    ("idempotency.created_at", TIME),
];

const RIGHTS: &str = "affects permissions, not stock or money";
const SETTING: &str =
    "the admin's setting for later orders; a line has its own names, price and limit";
const SOLD_NAME: &str = "only displayed; no ledger repeats it";
const TIME: &str =
    "only displayed, or affects later commands: clocks may be set, so none is compared";
const LOG: &str = "leads to a line of the log, which the database does not have";

/// Tables without stock and money, or with the lab's alone: only an item's own audit reads units
/// (`tests/it/units.rs`), and entries that are forged there are entries of `stock_ledger`; nor does
/// any other read lines that wait for their entries.
pub const OTHER_TABLES: [&str; 17] = [
    "_sqlx_migrations",
    "admin_log",
    "baskets",
    "expiry_lease",
    "item_units",
    "job_runs",
    "lab_class",
    "lab_marks",
    "lab_progress",
    "lab_runner",
    "lab_runs",
    "lock_family",
    "purge_walk",
    "sessions",
    "unit_ledger",
    "unpaid_failures",
    "unsettled_lines",
];

/// A forgery of several rows or columns, and the checks that must fail because of it.
pub struct Forgery {
    pub what: &'static str,
    pub sql: &'static str,
    pub caught_by: &'static [&'static str],
}

pub const FORGERIES: [Forgery; 22] = [
    Forgery {
        what: "a sequence is behind its table",
        sql: "select setval('stock_ledger_seq_seq', 1, false)",
        caught_by: &["sequences"],
    },
    Forgery {
        what: "a restock has a number below that of an earlier sale",
        sql: "with restocked as (
                  update items set stock = stock + 1, restocked = restocked + 1
                   where sku = 'key-ring' returning sku, stock, version)
              insert into stock_ledger (seq, sku, before, delta, after, version, reason, request_id)
              select -1, sku, stock - 1, 1, stock, version - 1, 'found', gen_random_uuid()
                from restocked",
        caught_by: &["stock-chain"],
    },
    Forgery {
        what: "an item of the shop has an entry of a unit",
        sql: "insert into unit_ledger (seq, sku, unit, before, delta, after, version, reason, request_id)
              values (1000000, 'deadbolt', 1, 1, -1, 0, 1, 'order', gen_random_uuid())",
        caught_by: &["stock-drift", "unit-entries"],
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
        caught_by: &["stock-drift", "stock-chain", "stock-forks", "stock-entries"],
    },
    Forgery {
        what: "a lost update: both read the same stock, the chain forks, and one unit too many is left",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, -1, stock - 1, version, 'lost', gen_random_uuid() from items where sku = 'deadbolt';
              insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, -1, stock - 1, version, 'lost', gen_random_uuid() from items where sku = 'deadbolt';
              update items set stock = stock - 1 where sku = 'deadbolt'",
        caught_by: &["stock-drift", "stock-chain", "stock-forks"],
    },
    Forgery {
        what: "more is sold than ever existed",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              select sku, stock, -stock - 3, -3, version, 'lost', gen_random_uuid() from items where sku = 'last-lantern';
              alter table items drop constraint items_stock_not_negative;
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
        what: "a line is missing",
        sql: "delete from order_lines where ctid = (select min(ctid) from order_lines)",
        caught_by: &["stock-entries", "order-totals"],
    },
    Forgery {
        what: "a line of an order that does not exist",
        sql: "insert into order_lines (order_id, sku, quantity, unit_price_cents, name, entry_seq)
              values (gen_random_uuid(), 'key-ring', 1, 1, 'Ring', 1)",
        caught_by: &["line-references"],
    },
    Forgery {
        what: "units of an item that does not exist",
        sql: "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
              values ('no-such-item', 0, 5, 5, 1, 'found', gen_random_uuid())",
        caught_by: &["stock-entries"],
    },
    Forgery {
        what: "a pending order was paid without money",
        sql: "update orders set status = 'paid', paid_at = now() where status = 'pending'",
        caught_by: &["payments", "money-conserved"],
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
        what: "a payment belongs to another user",
        sql: "update balance_ledger set order_id = (select id from orders o
                      where o.user_id <> balance_ledger.user_id and o.status = 'pending' limit 1)
               where seq = (select min(seq) from balance_ledger where reason = 'payment')",
        caught_by: &["balance-entries", "payments"],
    },
    Forgery {
        what: "all items and accounts are marked as those of the lab",
        sql: "update items set kind = 'lab'; update accounts set kind = 'lab'",
        caught_by: &["counted-apart"],
    },
    Forgery {
        what: "money without a top-up",
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
        what: "a line names the sale of another order",
        sql: "update order_lines l set entry_seq = o.entry_seq from order_lines o
               where o.sku = l.sku and o.entry_seq = (select max(entry_seq) from order_lines
                                                       where sku = 'key-ring')",
        caught_by: &["order-lines", "stock-entries"],
    },
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
