//! Locks that end without their holder: deleted by another client or by hand, lost with their
//! Redis, or expired after the holder was done or dead.

use std::collections::{BTreeMap, BTreeSet};

use crate::TimelineLane;
use crate::event::{Detail, TimelineEvent};
use crate::kind::EventKind;

/// The lanes that have a lock, by its key. A lock admits one, so that is the last one.
type Holders = BTreeMap<String, usize>;

/// Adds to the events when a lane's lock was gone, and names, in a delete by a client, whose lock
/// it was. `actors` are lanes without a request, such as Redis.
pub fn with_gone_locks(
    events: Vec<TimelineEvent>,
    lanes: &[TimelineLane],
    actors: &BTreeSet<usize>,
) -> Vec<TimelineEvent> {
    let mut holders = Holders::new();
    // Lanes that are done or dead, and have not released their lock.
    let mut left = BTreeSet::new();
    let mut all = Vec::with_capacity(events.len());

    for mut event in events {
        let (at_us, lane) = (event.at_us, event.lane);
        let gone = |victim| TimelineEvent::new(victim, at_us, EventKind::Gone);
        let mut victims = Vec::new();

        match event.kind {
            EventKind::Held => {
                let before =
                    holders.insert(event.key.clone(), lane).filter(|before| left.remove(before));
                all.extend(before.map(gone));
            }
            EventKind::Killed if actors.contains(&lane) => victims = take(&mut holders, ""),
            EventKind::Flushed => victims = take(&mut holders, ""),
            EventKind::Foreign | EventKind::Removed => victims = take(&mut holders, &event.key),
            EventKind::Left | EventKind::Killed => drop(left.insert(lane)),
            EventKind::Expired
            | EventKind::Release
            | EventKind::Lost
            | EventKind::Absent
            | EventKind::Died => holders.retain(|_, holder| *holder != lane),
            _ => {}
        }

        victims.retain(|victim| *victim != lane);
        if event.kind == EventKind::Foreign {
            event.detail.other = victims.first().map(|victim| lanes[*victim].short_name());
        }
        // Who deleted it; a Redis that lost its keys deleted nothing.
        let is_delete = matches!(event.kind, EventKind::Foreign | EventKind::Removed);
        let other = is_delete.then(|| lanes[lane].short_name());
        all.push(event);
        all.extend(victims.into_iter().map(|victim| {
            let detail = Detail { other: other.clone(), ..Detail::default() };
            TimelineEvent { detail, ..gone(victim) }
        }));
    }
    all
}

/// Removes the holder of a lock; all holders if the key is empty.
fn take(holders: &mut Holders, key: &str) -> Vec<usize> {
    if key.is_empty() {
        return std::mem::take(holders).into_values().collect();
    }
    holders.remove(key).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(lane: usize, kind: EventKind, key: &str) -> TimelineEvent {
        TimelineEvent { key: key.to_owned(), ..TimelineEvent::new(lane, 0, kind) }
    }

    /// Who deletes the lock of one item takes no other holder's; a Redis without its keys has none.
    #[test]
    fn only_the_lock_that_was_deleted_is_gone() {
        let lane = |name: &str| TimelineLane { name: name.to_owned(), ..TimelineLane::default() };
        let lanes = ["a", "b", "operator"].map(lane);
        let gone = |kind: EventKind, key: &str| {
            let held = [event(0, EventKind::Held, "coffee"), event(1, EventKind::Held, "tea")];
            let events = held.into_iter().chain([event(2, kind, key)]).collect();
            let mut all = with_gone_locks(events, &lanes, &BTreeSet::new());
            all.retain(|event| event.kind == EventKind::Gone);
            all.into_iter().map(|event| (event.lane, event.detail.other)).collect::<Vec<_>>()
        };
        let operator = Some("operator".to_owned());
        assert_eq!(gone(EventKind::Removed, "coffee"), [(0, operator.clone())]);
        assert_eq!(gone(EventKind::Foreign, "tea"), [(1, operator)]);
        assert_eq!(gone(EventKind::Flushed, ""), [(0, None), (1, None)]);
    }
}
