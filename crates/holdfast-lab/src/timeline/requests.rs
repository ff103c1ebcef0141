//! The timeline of traced requests, from sending each to its response.

use std::collections::BTreeSet;

use super::event::{Detail, Event, EventKind, Value};
use super::statement::statement;
use super::{Timeline, TimelineLane};
use crate::run::{Lane, LaneEvent};
use holdfast_base::messages::Language;
use holdfast_shop::probe::Point;
use holdfast_shop::{Cents, Strategy};

#[derive(Debug, Clone, Copy)]
pub struct TracedRequest<'a> {
    pub lane: &'a Lane,
    /// True if the unit it sold was sold before.
    pub is_duplicate: bool,
    /// Its strategy, if known: its statements are shown.
    pub strategy: Option<&'a Strategy>,
}

impl Timeline {
    pub fn of_requests(requests: &[TracedRequest<'_>], language: Language) -> Self {
        let events: Vec<&LaneEvent> =
            requests.iter().flat_map(|request| &request.lane.events).collect();
        let has_lock = events.iter().any(|event| event.event == Point::Held.name());
        let keys: BTreeSet<&str> = events.iter().map(|event| event.key.as_str()).collect();

        let mut timeline = Self::default();
        for (place, request) in requests.iter().enumerate() {
            timeline.lanes.push(TimelineLane {
                name: request.lane.label.text(language),
                replica: request.lane.replica.clone(),
                is_duplicate: request.is_duplicate,
            });
            timeline.events.extend(request.events(place, has_lock, keys.len() > 1));
        }

        timeline.events.sort_by_key(|event| event.at_us);
        let first_us = timeline.events.first().map_or(0, |event| event.at_us);
        for event in &mut timeline.events {
            event.at_us -= first_us;
        }
        timeline
    }
}

impl TracedRequest<'_> {
    fn events(&self, place: usize, has_lock: bool, names_keys: bool) -> Vec<Event> {
        let lane = self.lane;
        let mut events = Vec::with_capacity(lane.events.len() + 2);
        events.push(Event::without_detail(place, lane.sent_us, EventKind::Sent));

        let is_autocommit = commits_before_write(&lane.events);
        let is_read = lane.events.iter().any(|event| event.event == Point::Read.name());
        for traced in &lane.events {
            let kind = EventKind::of_trace(&traced.event, has_lock || !is_read, is_autocommit);
            let detail = self.detail(traced, names_keys);
            events.push(Event { lane: place, at_us: traced.t_us, kind, detail });
        }

        let last_us = lane.events.last().map_or(lane.sent_us, |event| event.t_us);
        events.push(match (lane.answered_us, lane.status) {
            (Some(at_us), Some(status)) => {
                let detail = Detail { value: Some(Value::Status(status)), ..Detail::default() };
                Event { lane: place, at_us, kind: EventKind::Answered, detail }
            }
            _ => Event::without_detail(place, last_us, EventKind::Broken),
        });
        events
    }

    fn detail(&self, traced: &LaneEvent, names_key: bool) -> Detail {
        let is_money = traced.key.starts_with("{user:");
        let point = Point::named(&traced.event);
        let value = traced.value.map(|value| match is_money {
            true => Value::Money(Cents(value)),
            false => Value::Units(value),
        });

        let mut detail = Detail {
            value,
            fence: traced.fence,
            key: (names_key && !traced.key.is_empty()).then(|| short_key(&traced.key)),
            statement: None,
            is_loss: self.is_duplicate && point == Some(Point::Write),
        };
        if let (Some(strategy), Some(point)) = (self.strategy, point) {
            detail.statement = statement(strategy, point, &detail);
        }
        detail
    }
}

/// Returns whether the write commits itself: it then passes the point of the commit before.
fn commits_before_write(events: &[LaneEvent]) -> bool {
    let points = events.iter().filter_map(|event| Point::named(&event.event));
    let mut points = points.filter(|point| matches!(point, Point::Write | Point::Commit));
    points.next() == Some(Point::Commit)
}

/// Shortens a key to its kind and its name's last five characters: `sku …d6061`.
fn short_key(key: &str) -> String {
    let plain = key.trim_matches(['{', '}']);
    let Some((kind, name)) = plain.split_once(':') else { return plain.to_owned() };
    match name.char_indices().rev().nth(4) {
        None | Some((0, _)) => format!("{kind} {name}"),
        Some((from, _)) => format!("{kind} …{}", &name[from..]),
    }
}
