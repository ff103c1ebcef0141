//! What a strategy sends to Postgres or Redis at a probe point, as far as strategies differ in it.

use holdfast_shop::Strategy;
use holdfast_shop::probe::Point;
use holdfast_shop::strategy::{Isolation, ReadMethod, WriteGuard};
use holdfast_story::{Detail, Value};

/// Returns the row's table, its value and key, and the ledger.
fn tables(detail: &Detail) -> [&'static str; 4] {
    match detail.value {
        Some(Value::Cents(_)) => ["accounts", "balance_cents", "user_id", "balance_ledger"],
        _ => ["items", "stock", "sku", "stock_ledger"],
    }
}

pub fn statement(strategy: &Strategy, point: Point, detail: &Detail) -> Option<String> {
    // A data path is one of items; accounts are changed in the common way.
    if !matches!(detail.value, Some(Value::Cents(_)))
        && let Some(sent) = sent_by_data_path(strategy, point)
    {
        return Some(sent.to_owned());
    }

    match point {
        Point::Expire | Point::Held | Point::Delete | Point::Release => {
            lock_commands(strategy.name, point).map(str::to_owned)
        }
        Point::Read => Some(read_statement(strategy, detail)),
        Point::Write => Some(write_statement(strategy, detail)),
        Point::Commit if strategy.transaction != Isolation::Autocommit => Some("commit".to_owned()),
        _ => None,
    }
}

fn sent_by_data_path(strategy: &Strategy, point: Point) -> Option<&'static str> {
    let mut sends = strategy.sends.iter();
    sends.find(|(sent_at, _)| *sent_at == point).map(|(_, statement)| *statement)
}

/// Returns whether a strategy takes the units from a counter, so that its wait is not the read's.
pub fn has_counter(strategy: &Strategy) -> bool {
    sent_by_data_path(strategy, Point::Deducted).is_some()
}

/// Returns what a strategy with a lock in Redis has sent at a point, or sends there.
fn lock_commands(strategy: &str, point: Point) -> Option<&'static str> {
    let commands = match (strategy, point) {
        ("owner" | "watchdog", Point::Held) => "SET lock owner NX PX lease",
        ("fenced" | "batched", Point::Held) => "INCR fence\nSET lock owner:fence NX PX lease",
        ("owner" | "watchdog" | "fenced" | "batched", Point::Release) => {
            "if GET lock = owner\nthen DEL lock"
        }
        ("setnx", Point::Held) | ("setnx-expire", Point::Expire) => "SETNX lock value",
        ("setnx-expire", Point::Held) => "PEXPIRE lock lease",
        ("check-then-del", Point::Held) => "SET lock owner NX PX lease",
        // Nothing compares the value.
        ("ttl" | "expire-only", Point::Held) => "SET lock value NX PX lease",
        ("check-then-del", Point::Delete) => "GET lock",
        ("setnx" | "setnx-expire" | "ttl" | "check-then-del", Point::Release) => "DEL lock",
        _ => return None,
    };
    Some(commands)
}

fn read_statement(strategy: &Strategy, detail: &Detail) -> String {
    let [row, column, key, ..] = tables(detail);
    let select = format!("select {column}, version from {row}\n where {key} = $1");

    match strategy.read {
        ReadMethod::Plain | ReadMethod::CheckThenUpdate => select,
        ReadMethod::RowLock => format!("{select}\n   for no key update"),
        ReadMethod::Advisory => {
            format!("select pg_advisory_xact_lock(hashtextextended($1, 0));\n{select}")
        }
        ReadMethod::ConditionalUpdate => format!(
            "update {row} set {column} = {column} + $2\n where {key} = $1 and {column} + $2 >= \
             0\nreturning {column} - $2, version"
        ),
    }
}

/// Returns the part of the one statement that changes the row, and names what else it writes.
fn write_statement(strategy: &Strategy, detail: &Detail) -> String {
    let [row, column, key, ledger] = tables(detail);
    let value = match detail.value {
        Some(Value::Units(value) | Value::Cents(value)) => value.to_string(),
        Some(Value::Status(_) | Value::Ms(_)) | None => "$2".to_owned(),
    };

    let fence = detail.fence.map_or_else(|| "$4".to_owned(), |fence| fence.to_string());
    let (set, guard) = match strategy.guard {
        WriteGuard::None => (String::new(), String::new()),
        WriteGuard::Version => (String::new(), " and version = $3".to_owned()),
        WriteGuard::VersionAndFence => {
            (format!(", fence = {fence}"), format!(" and version = $3 and fence <= {fence}"))
        }
    };

    if strategy.read == ReadMethod::CheckThenUpdate {
        return format!(
            "update {row} set {column} = {column} + $2\n where {key} = $1\n\
             returning {column} - $2, version\n-- then: {ledger}, idempotency, orders"
        );
    }
    // A conditional update has changed the row at the read already.
    if strategy.read == ReadMethod::ConditionalUpdate {
        return format!("insert into {ledger} …\n-- same statement: idempotency, orders");
    }
    format!(
        "update {row} set {column} = {value}{set}\n where {key} = $1{guard}\n\
         -- same statement: {ledger}, idempotency, orders"
    )
}
