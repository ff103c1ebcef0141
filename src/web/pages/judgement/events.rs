//! The events of a violation as a timeline, with a lane per client.

use std::collections::BTreeSet;

use crate::judge::report::{self, ClientId};
use crate::lab::timeline::{Detail, Event, EventKind, Timeline, TimelineLane, Value};

/// Returns the events in order of time, with the writes marked that lost an update.
pub fn timeline(events: &[report::Event]) -> Timeline {
    let clients: BTreeSet<ClientId> = events.iter().map(ClientId::of).collect();
    let clients: Vec<ClientId> = clients.into_iter().collect();
    let lane = |client: &ClientId| TimelineLane { name: client.to_string(), ..Default::default() };
    let event = |event: &report::Event| Event {
        lane: clients.partition_point(|client| *client < ClientId::of(event)),
        at_us: (event.t_ms * 1_000.0).round() as u64,
        kind: kind(&event.event),
        detail: Detail {
            value: event.value.map(Value::Units),
            fence: event.fence,
            ..Detail::default()
        },
    };
    let mut timeline = Timeline {
        lanes: clients.iter().map(lane).collect(),
        events: events.iter().map(event).collect(),
    };
    timeline.events.sort_by_key(|event| event.at_us);
    timeline.mark_stale_writes();
    timeline
}

fn kind(name: &str) -> EventKind {
    match name {
        "ask" => EventKind::Wait,
        "granted" => EventKind::Held,
        "read" => EventKind::Read,
        "write" => EventKind::Write,
        "refused" => EventKind::Refused,
        "released" => EventKind::Release,
        "lost" => EventKind::Lost,
        "paused" => EventKind::Paused,
        "continued" => EventKind::Resumed,
        "killed" => EventKind::Killed,
        other => EventKind::Other(other.to_owned()),
    }
}
