//! Finds in the events of a violation who held the lock when, who worked at the same time, and
//! which writes lost an update.

use std::collections::{BTreeMap, BTreeSet};

use crate::judge::report::{ClientId, Event};

/// Something that lasts: waiting, holding the lock, being paused.
#[derive(Debug)]
pub struct Activity {
    pub lane: ClientId,
    pub kind: &'static str,
    /// Begin and end, in milliseconds; the end is infinite if no event ends it.
    pub from: f64,
    pub to: f64,
}

/// Activities with the events that begin and end them. A paused client keeps what it had.
const ACTIVITIES: [(&str, &[&str], &[&str]); 3] = [
    ("waiting", &["ask"], &["granted", "killed"]),
    ("lock", &["granted"], &["released", "lost", "killed"]),
    ("paused", &["paused"], &["continued", "killed"]),
];
/// The time in which a second reader loses an update.
const WORK: (&[&str], &[&str]) = (&["read"], &["write", "refused", "released", "lost", "killed"]);

/// Returns what each lane did, in the order in which it is drawn: later ones cover earlier ones.
pub fn activities(events: &[Event]) -> Vec<Activity> {
    let mut found = Vec::new();
    for (kind, begins, ends) in ACTIVITIES {
        for (lane, from, to) in intervals(events, begins, ends) {
            found.push(Activity { lane, kind, from, to });
        }
    }
    found
}

fn intervals(events: &[Event], begins: &[&str], ends: &[&str]) -> Vec<(ClientId, f64, f64)> {
    let mut open: BTreeMap<ClientId, f64> = BTreeMap::new();
    let mut found = Vec::new();
    for event in events {
        let lane = ClientId::of(event);
        if ends.contains(&event.event.as_str()) {
            if let Some(from) = open.remove(&lane) {
                found.push((lane, from, event.t_ms));
            }
        } else if begins.contains(&event.event.as_str()) {
            open.entry(lane).or_insert(event.t_ms);
        }
    }
    found.extend(open.into_iter().map(|(lane, from)| (lane, from, f64::INFINITY)));
    found
}

/// Returns the times in which several clients were between read and write, one of which then lost
/// an update. Without a stale write, only those of a violation that is an overlap: responses arrive
/// late, so other clients may seem to overlap.
pub fn overlaps(events: &[Event], stale: &BTreeSet<usize>, is_overlap: bool) -> Vec<(f64, f64)> {
    let (begins, ends) = WORK;
    let work = intervals(events, begins, ends);
    let is_stale = |(lane, _, to): &(ClientId, f64, f64)| {
        stale
            .iter()
            .any(|index| ClientId::of(&events[*index]) == *lane && events[*index].t_ms == *to)
    };
    let stale_work: Vec<_> = work.iter().copied().filter(is_stale).collect();
    let counts = |(begin, end): &(f64, f64)| {
        is_overlap || stale_work.iter().any(|(_, from, to)| from < end && to > begin)
    };
    all_overlaps(events, work).into_iter().filter(counts).collect()
}

fn all_overlaps(events: &[Event], work: Vec<(ClientId, f64, f64)>) -> Vec<(f64, f64)> {
    // A client whose write is not among the events counts until the last of them.
    let last = events.last().map_or(0.0, |event| event.t_ms);
    let mut changes: Vec<(f64, i32)> = Vec::new();
    for (_, from, to) in work {
        changes.extend([(from, 1), (to.min(last), -1)]);
    }
    // Where one ends as another begins, they do not overlap.
    changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let (mut inside, mut since, mut found) = (0, None, Vec::new());
    for (t_ms, change) in changes {
        inside += change;
        match since {
            None if inside > 1 => since = Some(t_ms),
            Some(from) if inside < 2 => {
                found.push((from, t_ms));
                since = None;
            }
            _ => {}
        }
    }
    found
}

/// Returns the indices of the writes that lost an update: since the writer's read, another client
/// had written another value than the one that was read. A write that was refused is none.
pub fn stale_writes(events: &[Event]) -> BTreeSet<usize> {
    let mut read: BTreeMap<ClientId, (usize, Option<i64>)> = BTreeMap::new();
    let mut stale = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        let lane = ClientId::of(event);
        if event.event == "read" {
            read.insert(lane, (index, event.value));
        }
        let Some((from, value)) = read.get(&lane).filter(|_| is_write(events, index)) else {
            continue;
        };
        let is_other = |other: &usize| ClientId::of(&events[*other]) != lane;
        let other = (*from..index).rev().find(|other| is_other(other) && is_write(events, *other));
        if other.is_some_and(|other| events[other].value != *value) {
            stale.insert(index);
        }
    }
    stale
}

/// Returns whether an event is a write that took effect: its client's next event is no refusal.
fn is_write(events: &[Event], index: usize) -> bool {
    let lane = ClientId::of(&events[index]);
    let next = events[index + 1..].iter().find(|event| ClientId::of(event) == lane);
    events[index].event == "write" && next.is_none_or(|next| next.event != "refused")
}

/// Returns the index of the first event of an overlap, or of a stale write.
pub fn focus(events: &[Event], overlaps: &[(f64, f64)], stale: &BTreeSet<usize>) -> Option<usize> {
    let overlap = overlaps.first().map(|(from, _)| events.partition_point(|e| e.t_ms < *from));
    overlap.into_iter().chain(stale.first().copied()).min()
}

/// Returns the lanes of the drawn events; first those that took part in an overlap or lost an
/// update.
pub fn lanes(
    drawn: &[Event],
    overlaps: &[(f64, f64)],
    events: &[Event],
    stale: &BTreeSet<usize>,
) -> Vec<ClientId> {
    let (begins, ends) = WORK;
    let mut involved: BTreeSet<ClientId> =
        stale.iter().map(|index| ClientId::of(&events[*index])).collect();
    for (lane, from, to) in intervals(events, begins, ends) {
        if overlaps.iter().any(|(begin, end)| from < *end && to > *begin) {
            involved.insert(lane);
        }
    }
    let lanes: BTreeSet<ClientId> = drawn.iter().map(ClientId::of).collect();
    let mut lanes: Vec<ClientId> = lanes.into_iter().collect();
    lanes.sort_by_key(|lane| (!involved.contains(lane), *lane));
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t_ms: f64, client: u32, event: &str, value: Option<i64>) -> Event {
        Event { t_ms, worker: 0, client, event: event.to_owned(), value, fence: None }
    }

    #[test]
    fn stale_write_overwrites_unread_value() {
        let events = [
            event(1.0, 0, "read", Some(41)),
            event(2.0, 1, "read", Some(41)),
            event(3.0, 1, "write", Some(40)),
            event(4.0, 0, "write", Some(40)),
            event(5.0, 2, "read", Some(40)),
            event(6.0, 2, "write", Some(39)),
        ];
        let stale = stale_writes(&events);
        assert_eq!(stale, BTreeSet::from([3]));
        let overlaps = overlaps(&events, &stale, false);
        assert_eq!(overlaps, [(2.0, 3.0)]);
        assert_eq!(focus(&events, &overlaps, &stale), Some(1));
        let lanes = lanes(&events, &overlaps, &events, &stale);
        assert_eq!(lanes.iter().map(ToString::to_string).collect::<String>(), "w0 c0w0 c1w0 c2");
    }

    #[test]
    fn refused_write_loses_nothing() {
        let events = [
            event(1.0, 0, "read", Some(41)),
            event(2.0, 1, "read", Some(41)),
            event(3.0, 1, "write", Some(40)),
            event(4.0, 0, "write", Some(40)),
            event(4.1, 0, "refused", None),
            event(5.0, 0, "read", Some(40)),
            event(6.0, 2, "read", Some(40)),
            event(7.0, 0, "write", Some(39)),
            event(7.1, 0, "refused", None),
            event(8.0, 2, "write", Some(39)),
        ];
        assert_eq!(stale_writes(&events), BTreeSet::new());
    }

    /// The response to a write may arrive after another client has read the new value.
    #[test]
    fn read_of_new_value_is_not_stale() {
        let events = [
            event(1.0, 0, "read", Some(41)),
            event(2.0, 1, "read", Some(40)),
            event(2.1, 0, "write", Some(40)),
            event(3.0, 1, "write", Some(39)),
        ];
        let stale = stale_writes(&events);
        assert_eq!(stale, BTreeSet::new());
        assert_eq!(overlaps(&events, &stale, false), []);
        assert_eq!(overlaps(&events, &stale, true), [(2.0, 2.1)]);
    }

    #[test]
    fn killed_client_holds_nothing() {
        let events = [
            event(0.0, 0, "ask", None),
            event(1.0, 0, "granted", None),
            event(2.0, 0, "paused", None),
            event(3.0, 0, "killed", None),
            event(4.0, 1, "granted", None),
        ];
        let found: Vec<_> =
            activities(&events).iter().map(|it| (it.kind, it.from, it.to)).collect();
        let expected = [
            ("waiting", 0.0, 1.0),
            ("lock", 1.0, 3.0),
            ("lock", 4.0, f64::INFINITY),
            ("paused", 2.0, 3.0),
        ];
        assert_eq!(found, expected);
    }
}
