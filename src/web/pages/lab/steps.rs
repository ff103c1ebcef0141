//! The steps of requests, in one order: the list that a person reads, and that the script draws as
//! a swimlane.

use std::collections::BTreeSet;

use crate::lab::drawing::{describe_event, ms};
use crate::lab::run::{Lane, LaneEvent};
use crate::shop::strategy::{Isolation, ReadMethod, WriteGuard};
use crate::shop::{Cents, Strategy};

#[derive(Debug)]
pub struct StepTrack {
    /// JSON for the script: replica, name, and whether the request sold a unit again.
    pub heads: String,
    /// In order of time.
    pub steps: Vec<TrackStep>,
}

#[derive(Debug)]
pub struct TrackStep {
    /// Index of the request, from 0.
    pub lane: usize,
    /// Time since the first step, in µs.
    pub t_us: u64,
    pub event: String,
    pub value: String,
    pub text: String,
    /// The statement that is sent to Postgres or Redis at this step.
    pub statement: Option<String>,
}

impl TrackStep {
    pub fn at(&self) -> String {
        ms(self.t_us)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct TracedRequest<'a> {
    pub lane: &'a Lane,
    /// True if the unit it sold was sold before.
    pub is_duplicate: bool,
}

/// Returns the steps of these requests: all of them, from sending a request to its response; or
/// with `strategy` those inside the shop, with the statements of the strategy.
pub fn track(requests: &[TracedRequest<'_>], strategy: Option<&Strategy>) -> StepTrack {
    let events = || requests.iter().flat_map(|request| request.lane.events.iter());
    let keys: BTreeSet<&str> = events().map(|event| event.key.as_str()).collect();
    let many_keys = keys.len() > 1;
    let locked = events().any(|event| event.event == "held");
    let mut steps = Vec::new();
    for (place, TracedRequest { lane, .. }) in requests.iter().enumerate() {
        let mut step = |t_us: u64, event: &str, value: Option<String>, text: String, statement| {
            let text = format!("{} · {} {text}", lane.replica, lane.label);
            let (event, value) = (event.to_owned(), value.unwrap_or_default());
            steps.push(TrackStep { lane: place, t_us, event, value, text, statement });
        };
        if strategy.is_none() {
            step(lane.sent_us, "sent", None, "is sent".to_owned(), None);
        }
        // Under autocommit, the point before the commit is passed before the write.
        let autocommit = commits_before_write(&lane.events);
        let asks = locked || !lane.events.iter().any(|event| event.event == "read");
        for event in &lane.events {
            let mut text = words(event, asks, autocommit);
            if many_keys && !event.key.is_empty() {
                text += &format!(" ({})", short_key(&event.key));
            }
            let statement = strategy.and_then(|strategy| statement(strategy, event));
            step(event.t_us, &event.event, seen(event), text, statement);
        }
        if strategy.is_none() {
            let last = lane.events.last().map_or(lane.sent_us, |event| event.t_us);
            match (lane.answered_us, lane.status) {
                (Some(at), Some(status)) => {
                    step(at, "answered", None, format!("is answered {status}"), None);
                }
                _ => step(last, "broken", None, "is never answered".to_owned(), None),
            }
        }
    }
    steps.sort_by_key(|step| step.t_us);
    let first = steps.first().map_or(0, |step| step.t_us);
    for step in &mut steps {
        step.t_us -= first;
    }
    let heads: Vec<_> = requests
        .iter()
        .map(|request| (&request.lane.replica, &request.lane.label, request.is_duplicate))
        .collect();
    let heads = serde_json::to_string(&heads).unwrap_or_default();
    StepTrack { heads, steps }
}

/// Returns whether the write of this request is one statement that commits itself.
fn commits_before_write(events: &[LaneEvent]) -> bool {
    let first = events.iter().find(|event| matches!(event.event.as_str(), "write" | "commit"));
    first.is_some_and(|event| event.event == "commit")
}

fn words(event: &LaneEvent, asks_for_a_lock: bool, autocommit: bool) -> String {
    let value = seen(event).map(|value| format!(" {value}")).unwrap_or_default();
    let fence = event.fence.map(|fence| format!(", fence {fence}")).unwrap_or_default();
    match event.event.as_str() {
        "wait" if !asks_for_a_lock => "begins, without a lock".to_owned(),
        "commit" if autocommit => "is about to write and commit, in one statement".to_owned(),
        "release" if !asks_for_a_lock => "is through".to_owned(),
        event => describe_event(event, &value, &fence),
    }
}

fn is_money(event: &LaneEvent) -> bool {
    event.key.starts_with("{user:")
}

/// Returns the value that was read or written, formatted as units or as money.
fn seen(event: &LaneEvent) -> Option<String> {
    let money = is_money(event);
    event.value.map(|value| if money { Cents(value).to_string() } else { value.to_string() })
}

/// Shortens a key to its kind and its name's last five characters: `sku …d6061`.
fn short_key(key: &str) -> String {
    let plain = key.trim_matches(['{', '}']);
    let Some((kind, name)) = plain.split_once(':') else { return plain.to_owned() };
    let skipped = name.chars().count().saturating_sub(5);
    match skipped {
        0 => format!("{kind} {name}"),
        _ => format!("{kind} …{}", name.chars().skip(skipped).collect::<String>()),
    }
}

/// Returns what a strategy sends at that point, as far as strategies differ in it.
fn statement(strategy: &Strategy, event: &LaneEvent) -> Option<String> {
    let (table, column, name) = if is_money(event) {
        ("accounts", "balance_cents", "user_id")
    } else {
        ("items", "stock", "sku")
    };
    let leased = matches!(strategy.name, "owner" | "watchdog");
    let select = format!("select {column}, version from {table} where {name} = $1");
    match event.event.as_str() {
        "held" if leased => Some("SET key owner NX PX ttl".to_owned()),
        "release" if leased => Some("if GET key = owner then DEL key".to_owned()),
        "read" => Some(match strategy.read {
            ReadMethod::Plain => select,
            ReadMethod::RowLock => format!("{select} for no key update"),
            ReadMethod::Advisory => {
                format!("select pg_advisory_xact_lock(hashtextextended($1, 0)); {select}")
            }
            ReadMethod::ConditionalUpdate => format!(
                "update {table} set {column} = {column} + $2 \
                 where {name} = $1 and {column} + $2 >= 0 returning {column} - $2, version"
            ),
        }),
        "write" => Some(write_statement(strategy, event)),
        "commit" if strategy.transaction != Isolation::Autocommit => Some("commit".to_owned()),
        _ => None,
    }
}

/// Returns the one statement that writes everything: row, ledger entry, order and key record.
fn write_statement(strategy: &Strategy, event: &LaneEvent) -> String {
    let value = event.value.map_or_else(|| "$2".to_owned(), |value| value.to_string());
    let fence = event.fence.map_or_else(|| "$4".to_owned(), |fence| fence.to_string());
    let (table, column, name, ledger, order) = if is_money(event) {
        ("accounts", "balance_cents", "user_id", "balance_ledger", "update orders set status = …")
    } else {
        ("items", "stock", "sku", "stock_ledger", "insert into orders …")
    };
    let (set, guard) = match strategy.guard {
        WriteGuard::None => (String::new(), String::new()),
        WriteGuard::Version => (String::new(), " and version = $3".to_owned()),
        WriteGuard::VersionAndFence => {
            (format!(", fence = {fence}"), format!(" and version = $3 and fence <= {fence}"))
        }
    };
    // A conditional update has changed the row at the read already.
    let changed = if strategy.read == ReadMethod::ConditionalUpdate {
        String::new()
    } else {
        format!(
            "changed as (update {table} set {column} = {value}{set} \
             where {name} = $1{guard} returning …), "
        )
    };
    format!(
        "with {changed}entered as (insert into {ledger} …), \
         recorded as (insert into idempotency …) {order}"
    )
}
