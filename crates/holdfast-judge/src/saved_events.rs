//! Events of a violation as a judgement's file has them, with the words of the judge's protocol:
//! `{"t_ms": 0.09, "worker": 0, "client": 3, "event": "granted", "fence": 7}`.

use holdfast_story::{Detail, EventKind, TimelineEvent, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::report::{Actor, ClientId, StruckServer};

/// Names that differ from those of a trace: of what a client does, and of what happens to a server.
static OF_CLIENTS: [(EventKind, &str); 4] = [
    (EventKind::Wait, "ask"),
    (EventKind::Held, "granted"),
    (EventKind::Release, "released"),
    (EventKind::Resumed, "continued"),
];
static OF_SERVERS: [(EventKind, &str); 1] = [(EventKind::Closed, "disconnected")];

#[derive(Serialize, Deserialize)]
struct ViolationEvent {
    /// Milliseconds since the fault's work began.
    t_ms: f64,
    #[serde(flatten)]
    id: ClientId,
    /// The server to which it happened, while this client held the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<StruckServer>,
    event: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<i64>,
}

/// Returns the name of what happened to a client, or to a server.
pub(super) fn name(kind: &EventKind, server: Option<StruckServer>) -> &str {
    let own = names(server).iter().find(|(other, _)| other == kind);
    own.map_or_else(|| kind.as_str(), |(_, name)| *name)
}

fn kind(name: &str, server: Option<StruckServer>) -> EventKind {
    let own = names(server).iter().find(|(_, other)| *other == name);
    own.map_or_else(|| EventKind::named(name), |(kind, _)| kind.clone())
}

fn names(server: Option<StruckServer>) -> &'static [(EventKind, &'static str)] {
    if server.is_some() { &OF_SERVERS } else { &OF_CLIENTS }
}

pub(super) fn serialize<S: Serializer>(
    events: &[TimelineEvent<Actor>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.iter().map(|event| ViolationEvent {
        t_ms: event.at_us as f64 / 1_000.0,
        id: event.lane.id,
        server: event.lane.server,
        event: name(&event.kind, event.lane.server).to_owned(),
        value: event.number(),
        fence: event.detail.fence,
    }))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<TimelineEvent<Actor>>, D::Error> {
    let saved = Vec::<ViolationEvent>::deserialize(deserializer)?;
    let events = saved.into_iter().map(|saved| {
        let actor = Actor { server: saved.server, id: saved.id };
        let at_us = (saved.t_ms * 1_000.0).round() as u64;
        let kind = kind(&saved.event, saved.server);
        let value = saved.value.map(Value::Units);
        let detail = Detail { value, fence: saved.fence, ..Detail::default() };
        TimelineEvent { detail, ..TimelineEvent::new(actor, at_us, kind) }
    });
    Ok(events.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use crate::report::Violation;

    #[test]
    fn servers_have_lanes_of_their_own() {
        let event = |t_ms: f64, server: Option<&str>, event: &str| {
            let mut saved = json!({ "t_ms": t_ms, "worker": 0, "client": 3, "event": event });
            if let Some(server) = server {
                saved["server"] = server.into();
            }
            saved
        };
        let events = [
            event(1.0, None, "granted"),
            event(2.0, Some("Redis"), "disconnected"),
            event(3.0, Some("Redis replica"), "promoted"),
            event(4.0, Some("<b>another</b>"), "flushed"),
        ];
        let violation = json!({ "kind": "overlap", "text": "", "events": events });
        let violation: Violation = serde_json::from_value(violation).expect("a violation");

        let timeline = violation.timeline();
        let lanes: Vec<&str> = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
        assert_eq!(lanes, ["w0 c3", "Redis", "Redis replica"]);
        let of: Vec<usize> = timeline.events.iter().map(|event| event.lane).collect();
        assert_eq!(of, [0, 1, 2, 1]);

        let saved: Json = serde_json::to_value(&violation).expect("JSON");
        let names = ["granted", "disconnected", "promoted", "flushed"];
        for (event, name) in saved["events"].as_array().expect("a list").iter().zip(names) {
            assert_eq!(event["event"], *name);
        }
    }
}
