//! The timeline of traced requests, from sending each to its response.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::statement::{has_counter, statement};
use crate::run::Lane;
use holdfast_base::messages::Language;
use holdfast_shop::Strategy;
use holdfast_shop::probe::Point;
use holdfast_story::{
    Detail, EventKind, Timeline, TimelineEvent, TimelineLane, Value, with_gone_locks,
};

#[derive(Debug, Clone, Copy)]
pub struct TracedRequest<'a> {
    pub lane: &'a Lane,
    /// True if the unit it sold was sold before.
    pub is_duplicate: bool,
    /// Its strategy, if known: its statements are shown.
    pub strategy: Option<&'a Strategy>,
}

/// Returns the timeline of requests, with what follows from their events.
pub fn timeline_of(requests: &[TracedRequest<'_>], language: Language) -> Timeline {
    let events: Vec<&TimelineEvent<()>> =
        requests.iter().flat_map(|request| &request.lane.events).collect();
    let has_lock = events.iter().any(|event| event.kind == EventKind::Held);
    let mut keys: BTreeSet<&str> = events.iter().map(|event| event.key.as_str()).collect();
    keys.remove("");
    let shared = shared_keys(requests);

    let mut lanes = Vec::with_capacity(requests.len());
    let mut all: Vec<TimelineEvent> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        lanes.push(TimelineLane {
            name: request.lane.label.text(language),
            replica: request.lane.replica.clone(),
            is_duplicate: request.is_duplicate,
        });
        let own = request.lane.idempotency_key;
        let key = shared.iter().find(|(shared, _)| Some(*shared) == own);
        let key = key.map(|(_, name)| name.as_str());
        all.extend(request.events(place, has_lock, keys.len() > 1, key));
    }

    all.sort_by_key(|event| event.at_us);
    let first_us = all.first().map_or(0, |event| event.at_us);
    for event in &mut all {
        event.at_us -= first_us;
        let key = event.detail.key.take();
        event.detail.key = key.map(|key| in_words(key, language));
    }

    let actors: BTreeSet<usize> =
        (0..requests.len()).filter(|place| requests[*place].lane.is_actor()).collect();
    let events = with_gone_locks(all, &lanes, &actors);
    let mut timeline = Timeline { lanes, events };
    // The losses of a load are known from its ledger.
    if requests.iter().all(|request| request.lane.arm.is_none()) {
        timeline.mark_stale_writes();
    } else {
        timeline.blame();
    }
    timeline
}

impl TracedRequest<'_> {
    /// `shared_key` names its idempotency key if another request has it too.
    fn events(
        &self,
        place: usize,
        has_lock: bool,
        names_keys: bool,
        shared_key: Option<&str>,
    ) -> Vec<TimelineEvent> {
        let lane = self.lane;
        let mut events: Vec<TimelineEvent> = Vec::with_capacity(lane.events.len() + 2);
        if !lane.is_actor() {
            events.push(TimelineEvent::new(place, lane.sent_us, EventKind::Sent));
        }

        let is_autocommit = commits_before_write(&lane.events);
        let is_read = lane.events.iter().any(|event| event.kind == EventKind::Read);
        let counts = self.strategy.is_some_and(has_counter);
        for traced in &lane.events {
            let may_wait = has_lock || !is_read && !counts;
            let kind = self.kind(&traced.kind, may_wait, is_autocommit);
            // What became of the lock has been said.
            if kind == EventKind::Release && events.last().is_some_and(is_end) {
                continue;
            }
            let detail = self.detail(traced, &kind, names_keys);
            events.push(TimelineEvent { kind, detail, ..traced.clone().on(place) });
        }

        events.extend(self.response(place));
        for event in &mut events {
            event.detail.shared_key = shared_key.map(str::to_owned);
        }
        measure_pauses(&mut events);
        events
    }

    fn kind(&self, traced: &EventKind, has_lock: bool, is_autocommit: bool) -> EventKind {
        let kind = traced.in_request(has_lock, is_autocommit);
        let compares = self.strategy.is_none_or(|it| !DELETES_BLINDLY.contains(&it.name));
        match kind {
            EventKind::Lost if !compares => EventKind::Absent,
            EventKind::Killed if self.has_lock_in_memory() => EventKind::Died,
            kind => kind,
        }
    }

    /// Returns whether it has got a lock that only its process knows, and has not released it.
    fn has_lock_in_memory(&self) -> bool {
        let is_in_memory = |it: &Strategy| it.lock.is_some() && it.lock_in_redis().is_none();
        let mut kinds = self.lane.events.iter().rev().map(|event| &event.kind);
        let last = kinds.find(|kind| matches!(kind, EventKind::Held | EventKind::Release));
        self.strategy.is_some_and(is_in_memory) && last == Some(&EventKind::Held)
    }

    /// Returns the response, or that there was none; nothing if the events say why.
    fn response(&self, place: usize) -> Option<TimelineEvent> {
        let lane = self.lane;
        if let (Some(at_us), Some(status)) = (lane.answered_us, lane.status) {
            let detail = Detail {
                value: Some(Value::Status(status)),
                problem: lane.problem.clone(),
                ..Detail::default()
            };
            return Some(TimelineEvent {
                detail,
                ..TimelineEvent::new(place, at_us, EventKind::Answered)
            });
        }

        let is_explained = lane
            .events
            .iter()
            .any(|event| matches!(event.kind, EventKind::Killed | EventKind::Disconnected));
        let last_us = lane.events.last().map_or(lane.sent_us, |event| event.at_us);
        let broken = TimelineEvent::new(place, last_us, EventKind::Broken);
        (!lane.is_actor() && !is_explained).then_some(broken)
    }

    fn detail(&self, traced: &TimelineEvent<()>, kind: &EventKind, names_key: bool) -> Detail {
        let point = match kind {
            EventKind::Foreign | EventKind::Lost | EventKind::Absent => Some(Point::Release),
            _ => Point::named(traced.kind.as_str()),
        };
        let mut detail = Detail {
            key: (names_key && !traced.key.is_empty()).then(|| short_key(&traced.key)),
            is_loss: self.is_duplicate && point == Some(Point::Write),
            ..traced.detail.clone()
        };
        if let (Some(strategy), Some(point)) = (self.strategy, point) {
            detail.statement = statement(strategy, point, &detail);
        }
        detail
    }
}

/// Strategies that delete the key of their lock without looking whose it is.
const DELETES_BLINDLY: [&str; 3] = ["setnx", "setnx-expire", "ttl"];

/// Returns whether an event says what became of the lock at its release.
fn is_end(event: &TimelineEvent) -> bool {
    use EventKind::{Absent, Foreign, Left, Lost};
    matches!(event.kind, Foreign | Lost | Absent | Left)
}

/// Adds to the events of a lane how long it was paused, or worked, if it went on.
fn measure_pauses(events: &mut [TimelineEvent]) {
    for index in 0..events.len() {
        let (pauses, rest) = events.split_at_mut(index + 1);
        let Some(pause) = pauses.last_mut() else { continue };
        if matches!(pause.kind, EventKind::Paused | EventKind::Works) {
            let is_end = |kind| matches!(kind, &EventKind::Resumed | &EventKind::Worked);
            let end = rest.iter().find(|event| is_end(&event.kind));
            let length_us = end.map(|end| end.at_us.saturating_sub(pause.at_us));
            pause.detail.value = length_us.map(|us| Value::Ms(us.saturating_add(500) / 1_000));
        }
    }
}

/// Returns the idempotency keys that several requests have, with their names: `K`, or `K1`, `K2`.
fn shared_keys(requests: &[TracedRequest<'_>]) -> Vec<(Uuid, String)> {
    let mut shared: Vec<(Uuid, usize)> = Vec::new();
    for key in requests.iter().filter_map(|request| request.lane.idempotency_key) {
        match shared.iter_mut().find(|(known, _)| *known == key) {
            Some((_, requests)) => *requests += 1,
            None => shared.push((key, 1)),
        }
    }
    shared.retain(|(_, requests)| *requests > 1);

    let is_one = shared.len() == 1;
    let name = |at: usize| if is_one { "K".to_owned() } else { format!("K{}", at + 1) };
    shared.into_iter().enumerate().map(|(at, (key, _))| (key, name(at))).collect()
}

/// Returns whether the write commits itself: it then passes the point of the commit before.
fn commits_before_write(events: &[TimelineEvent<()>]) -> bool {
    let mut kinds = events.iter().map(|event| &event.kind);
    let first = kinds.find(|kind| matches!(kind, EventKind::Write | EventKind::Commit));
    first == Some(&EventKind::Commit)
}

/// Shortens a key to its name, if that is a word, or to its kind and the last five characters of
/// its name: `tea`, `sku …d6061`.
fn short_key(key: &str) -> String {
    let plain = key.trim_matches(['{', '}']);
    let Some((kind, name)) = plain.split_once(':') else { return plain.to_owned() };
    if name.chars().all(char::is_alphabetic) {
        return name.to_owned();
    }
    match name.char_indices().rev().nth(4) {
        None | Some((0, _)) => format!("{kind} {name}"),
        Some((from, _)) => format!("{kind} …{}", &name[from..]),
    }
}

/// Returns the name of a key as the questions of lessons have it.
fn in_words(key: String, language: Language) -> String {
    match key.as_str() {
        "tea" | "coffee" => language.text(&format!("sketch-{key}")),
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    /// A lane, whose events are `T_US EVENT [VALUE]`; those of one without an id are an actor's.
    fn lane(id: u8, label: &str, status: Option<u16>, events: &[&str]) -> Lane {
        let event = |text: &&str| {
            let mut parts = text.split(' ');
            let t_us: u64 = parts.next().unwrap_or_default().parse().expect("a time");
            let name = parts.next().expect("a name");
            let value: Option<i64> = parts.next().and_then(|value| value.parse().ok());
            json!({ "t_us": t_us, "event": name, "key": "{sku:tea}", "value": value })
        };
        let events: Vec<Json> = events.iter().map(event).collect();
        serde_json::from_value(json!({
            "request_id": format!("00000000-0000-0000-0000-0000000000{id:02}"),
            "label": label, "replica": "", "arm": null, "sent_us": 0,
            "answered_us": status.map(|_| 900), "status": status, "problem": null,
            "events": events,
        }))
        .expect("a lane")
    }

    fn told(lanes: &[Lane]) -> Vec<String> {
        let requests: Vec<TracedRequest<'_>> = lanes
            .iter()
            .map(|lane| TracedRequest { lane, is_duplicate: false, strategy: None })
            .collect();
        let timeline = timeline_of(&requests, Language::English);
        let ends = [EventKind::Sent, EventKind::Answered];
        let events = timeline.events.iter().filter(|event| !ends.contains(&event.kind));
        let sentence = |event: &TimelineEvent| {
            format!("{} {}", timeline.lanes[event.lane].name, event.text(Language::English))
        };
        events.map(sentence).collect()
    }

    #[test]
    fn foreign_delete_names_its_victim() {
        let a =
            lane(1, "A", Some(201), &["10 held", "50 expired 1500", "80 foreign", "81 release"]);
        let b = lane(2, "B, meanwhile", None, &["60 held"]);
        assert_eq!(
            told(&[a.clone(), b]),
            [
                "A has the lock",
                "A has lost the lock: its lease of 1,500 ms is over",
                "B, meanwhile has the lock",
                "B, meanwhile gets no answer",
                "A deletes B’s lock",
                "B, meanwhile has lost the lock: A has deleted its key",
            ]
        );
        let free = told(&[a, lane(2, "B", Some(201), &["60 held", "70 release"])]);
        assert!(free.contains(&"A deletes another holder’s lock".to_owned()), "{free:?}");
    }

    #[test]
    fn killed_requests_have_one_end() {
        let killed = lane(1, "A", None, &["10 held", "20 killed"]);
        let hung = lane(2, "B", None, &["30 disconnected"]);
        let operator = lane(0, "operator", None, &["40 removed"]);
        assert_eq!(
            told(&[killed.clone(), hung, operator]),
            [
                "A has the lock",
                "A is killed",
                "B loses its client: the connection breaks, and the response is lost",
                "operator deletes the key by hand",
                "A has lost the lock: operator has deleted its key",
            ]
        );
        // Its lock was gone when the next one got it.
        let next = lane(2, "B", Some(201), &["50 held", "60 release"]);
        let told = told(&[killed, next]);
        assert!(told.contains(&"A has lost the lock: its key is gone".to_owned()), "{told:?}");
    }

    /// A lock in the memory of its process is neither deleted nor found by others.
    #[test]
    fn lock_in_memory_dies_with_its_process() {
        let a = lane(1, "A", None, &["10 held", "20 killed"]);
        let b = lane(2, "B", None, &["15 wait", "21 killed"]);
        let c = lane(3, "C", Some(201), &["60 held", "70 release"]);
        let strategy = Strategy::named("queue");
        let requests =
            [&a, &b, &c].map(|lane| TracedRequest { lane, is_duplicate: false, strategy });
        let events = timeline_of(&requests, Language::English).events;
        let ends = events.iter().filter(|event| event.lane < 2 && event.at_us >= 20);
        let ends: Vec<(usize, &EventKind)> = ends.map(|event| (event.lane, &event.kind)).collect();
        assert_eq!(ends, [(0, &EventKind::Died), (1, &EventKind::Killed)]);
    }

    #[test]
    fn keys_of_lessons_are_words() {
        assert_eq!(["{sku:coffee}", "{sku:lab-0d6061}"].map(short_key), ["coffee", "sku …d6061"]);
    }

    #[test]
    fn tea_and_coffee_are_words_of_the_language() {
        let mut a = lane(1, "A", None, &["10 held", "20 wait"]);
        "{sku:coffee}".clone_into(&mut a.events[1].key);
        let request = TracedRequest { lane: &a, is_duplicate: false, strategy: None };
        let timeline = timeline_of(&[request], Language::Chinese);
        let labels = timeline.events.iter().flat_map(|event| event.labels(Language::Chinese));
        assert_eq!(labels.collect::<Vec<_>>(), ["加锁：茶", "加锁", "请求：咖啡"]);
    }

    #[test]
    fn flushed_redis_takes_all_locks() {
        let a = lane(1, "A", Some(201), &["10 held", "50 lost", "51 release"]);
        let redis = lane(0, "Redis", None, &["20 flushed"]);
        assert_eq!(
            told(&[a, redis]),
            [
                "A has the lock",
                "Redis loses all keys and counters (FLUSHALL)",
                "A has lost the lock: its key is gone",
                "A finds at its release that the lock is no longer its own",
            ]
        );
    }

    /// A late holder that compares nothing finds no key, and never looked whose it was.
    #[test]
    fn blind_release_finds_no_key() {
        let a = lane(1, "A", Some(201), &["10 held", "50 lost", "51 release"]);
        for (strategy, expected) in [
            ("ttl", "A sends DEL, but there is no key any more"),
            ("check-then-del", "A finds at its release that the lock is no longer its own"),
        ] {
            let strategy = Strategy::named(strategy);
            let request = TracedRequest { lane: &a, is_duplicate: false, strategy };
            let timeline = timeline_of(&[request], Language::English);
            let told = timeline.events.iter().map(|it| it.text(Language::English));
            assert!(told.map(|it| format!("A {it}")).any(|it| it == expected), "{expected}");
            let statements = timeline.events.iter().filter_map(|it| it.detail.statement.as_deref());
            let set = statements.collect::<Vec<_>>()[0];
            assert_eq!(set.contains("owner"), expected.contains("its own"), "{set}");
        }
    }

    /// Requests with one idempotency key name it; the key of a single request has no name.
    #[test]
    fn shared_idempotency_key_is_named() {
        let mut lanes = [
            lane(1, "A", Some(201), &["10 read 10", "20 write 9", "25 commit", "30 committed"]),
            lane(2, "B", Some(201), &["60 replayed"]),
            lane(3, "C", Some(201), &["70 read 9", "80 write 8", "85 commit", "90 committed"]),
        ];
        let keys = [Uuid::from_u128(7), Uuid::from_u128(7), Uuid::from_u128(8)];
        for (lane, key) in lanes.iter_mut().zip(keys) {
            lane.idempotency_key = Some(key);
        }
        let found = "B finds the key K: it gets the stored response of the first request";
        let committed = "A has committed the order, with its key K and the response";
        let told = told(&lanes);
        for expected in [committed, found, "C has committed"] {
            assert!(told.iter().any(|it| it == expected), "{expected}: {told:?}");
        }

        for (lane, key) in lanes.iter_mut().zip([1, 2, 2]) {
            lane.idempotency_key = Some(Uuid::from_u128(key));
        }
        let told = self::told(&lanes);
        assert!(
            told.contains(&found.to_owned()) && !told.contains(&committed.to_owned()),
            "{told:?}"
        );
    }

    #[test]
    fn pauses_and_work_have_their_length() {
        let paused = lane(1, "A", Some(201), &["1000 paused", "314400 resumed", "400000 paused"]);
        let works = lane(2, "B", Some(201), &["1000 works", "121000 worked"]);
        assert_eq!(
            told(&[paused, works]),
            [
                "A is paused, for 313 ms",
                "B works for 120 ms with what it has read",
                "B has done its work",
                "A continues",
                "A is paused",
            ]
        );
    }

    /// An event that concerns no lock, such as a pause of the process, adds no names of keys.
    #[test]
    fn events_without_key_name_none() {
        let mut lane = lane(1, "A", Some(201), &["10 held", "20 read 10", "30 stopped"]);
        lane.events[2].key.clear();
        let told = told(&[lane]);
        assert!(told.iter().all(|text| !text.contains("(sku")), "{told:?}");
    }
}
