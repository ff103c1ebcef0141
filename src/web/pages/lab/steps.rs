//! The steps of requests, in one order: the list that a person reads, and that the script draws as
//! a swimlane.

use std::collections::BTreeSet;

use crate::lab::drawing::ms;
use crate::lab::run::{Lane, LaneEvent};
use crate::messages::Language;
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
    /// Replica and name of the request.
    pub request: String,
    /// Shortened key of the value, if the requests concern several.
    key: String,
    fence: Option<i64>,
    /// Message that describes the event; empty for an unknown event, which is shown by its name.
    message: &'static str,
    /// The statement that is sent to Postgres or Redis at this step.
    pub statement: Option<String>,
}

impl TrackStep {
    pub fn at(&self) -> String {
        ms(self.t_us)
    }

    /// Describes the step without its request: `reads 57, fence 3`.
    pub fn text(&self, language: Language) -> String {
        let mut text = match self.message {
            "" => self.event.clone(),
            message => language.text_with(message, &[("value", self.value.as_str().into())]),
        };
        if let Some(fence) = self.fence {
            let fence = fence.to_string();
            let variables = [("text", text.into()), ("fence", fence.into())];
            text = language.text_with("swimlane-with-fence", &variables);
        }
        if !self.key.is_empty() {
            text += &format!(" ({})", self.key);
        }
        text
    }

    /// Returns the label of the event in the drawing; empty if its mark says enough.
    pub fn label(&self, language: Language) -> String {
        let message = match self.event.as_str() {
            "read" => "swimlane-label-read",
            "write" => "swimlane-label-write",
            "held" => "swimlane-label-held",
            "release" if self.message == "swimlane-event-release" => "swimlane-label-release",
            "committed" => "swimlane-label-committed",
            "paused" => "swimlane-label-paused",
            "killed" => "swimlane-label-killed",
            "answered" if self.value.starts_with('4') => "swimlane-label-rejected",
            "answered" if self.value.starts_with('5') => "swimlane-label-answered",
            _ => return String::new(),
        };
        language.text_with(message, &[("value", self.value.as_str().into())])
    }
}

#[derive(Debug, Clone, Copy)]
pub struct TracedRequest<'a> {
    pub lane: &'a Lane,
    /// True if the unit it sold was sold before.
    pub is_duplicate: bool,
    /// Its strategy, if known: its statements are shown.
    pub strategy: Option<&'a Strategy>,
}

/// Returns the steps of these requests, from sending a request to its response.
pub fn track(requests: &[TracedRequest<'_>], language: Language) -> StepTrack {
    let events = || requests.iter().flat_map(|request| request.lane.events.iter());
    let keys: BTreeSet<&str> = events().map(|event| event.key.as_str()).collect();
    let has_many_keys = keys.len() > 1;
    let is_locked = events().any(|event| event.event == "held");
    let mut steps = Vec::new();
    for (place, TracedRequest { lane, strategy, .. }) in requests.iter().enumerate() {
        let step = |t_us: u64, event: &str, message: &'static str| TrackStep {
            lane: place,
            t_us,
            event: event.to_owned(),
            value: String::new(),
            request: format!("{} · {}", lane.replica, lane.label.text(language)),
            key: String::new(),
            fence: None,
            message,
            statement: None,
        };
        steps.push(step(lane.sent_us, "sent", "swimlane-event-sent"));
        // Under autocommit, the point before the commit is passed before the write.
        let autocommit = commits_before_write(&lane.events);
        let asks = is_locked || !lane.events.iter().any(|event| event.event == "read");
        for event in &lane.events {
            let message = message(&event.event, asks, autocommit);
            steps.push(TrackStep {
                value: seen(event).unwrap_or_default(),
                key: if has_many_keys { short_key(&event.key) } else { String::new() },
                fence: event.fence,
                statement: strategy.and_then(|strategy| statement(strategy, event)),
                ..step(event.t_us, &event.event, message)
            });
        }
        let last = lane.events.last().map_or(lane.sent_us, |event| event.t_us);
        steps.push(match (lane.answered_us, lane.status) {
            (Some(at), Some(status)) => TrackStep {
                value: status.to_string(),
                ..step(at, "answered", "swimlane-event-answered")
            },
            _ => step(last, "broken", "swimlane-event-broken"),
        });
    }
    steps.sort_by_key(|step| step.t_us);
    let first = steps.first().map_or(0, |step| step.t_us);
    for step in &mut steps {
        step.t_us -= first;
    }
    let heads: Vec<_> = requests
        .iter()
        .map(|TracedRequest { lane, is_duplicate, .. }| {
            (&lane.replica, lane.label.text(language), is_duplicate)
        })
        .collect();
    let heads = serde_json::to_string(&heads).unwrap_or_default();
    StepTrack { heads, steps }
}

/// Returns whether the write of this request is one statement that commits itself.
fn commits_before_write(events: &[LaneEvent]) -> bool {
    let first = events.iter().find(|event| matches!(event.event.as_str(), "write" | "commit"));
    first.is_some_and(|event| event.event == "commit")
}

fn message(event: &str, asks_for_a_lock: bool, autocommit: bool) -> &'static str {
    match event {
        "wait" if !asks_for_a_lock => "swimlane-event-begin",
        "wait" => "swimlane-event-wait",
        "held" => "swimlane-event-held",
        "read" => "swimlane-event-read",
        "write" => "swimlane-event-write",
        "commit" if autocommit => "swimlane-event-autocommit",
        "commit" => "swimlane-event-commit",
        "committed" => "swimlane-event-committed",
        "release" if !asks_for_a_lock => "swimlane-event-end",
        "release" => "swimlane-event-release",
        "expire" => "swimlane-event-expire",
        "delete" => "swimlane-event-delete",
        "paused" => "swimlane-event-paused",
        "resumed" => "swimlane-event-resumed",
        "killed" => "swimlane-event-killed",
        _ => "",
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
pub(in crate::web::pages) fn statement(strategy: &Strategy, event: &LaneEvent) -> Option<String> {
    let (table, column, name) = if is_money(event) {
        ("accounts", "balance_cents", "user_id")
    } else {
        ("items", "stock", "sku")
    };
    let leased = matches!(strategy.name, "owner" | "watchdog");
    let fenced = matches!(strategy.name, "fenced" | "batched");
    let select = format!("select {column}, version from {table}\n where {name} = $1");
    match event.event.as_str() {
        "held" if leased => Some("SET lock owner NX PX lease".to_owned()),
        "held" if fenced => Some("INCR fence\nSET lock owner:fence NX PX lease".to_owned()),
        "release" if leased || fenced => Some("if GET lock = owner\nthen DEL lock".to_owned()),
        "read" => Some(match strategy.read {
            ReadMethod::Plain => select,
            ReadMethod::RowLock => format!("{select}\n   for no key update"),
            ReadMethod::Advisory => {
                format!("select pg_advisory_xact_lock(hashtextextended($1, 0));\n{select}")
            }
            ReadMethod::ConditionalUpdate => format!(
                "update {table} set {column} = {column} + $2\n where {name} = $1 and {column} + $2 \
                 >= 0\nreturning {column} - $2, version"
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
            "changed as (update {table} set {column} = {value}{set}\n where {name} = $1{guard} \
             returning …),\n"
        )
    };
    format!(
        "with {changed}entered as (insert into {ledger} …),\n\
         recorded as (insert into idempotency …)\n{order}"
    )
}
