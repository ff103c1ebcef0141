//! Tests of what a lane does between two events.

mod pairs;

use super::*;
use crate::{Detail, TimelineEvent, TimelineLane, Value};

fn event(at_us: u64, lane: usize, kind: EventKind, value: Option<i64>) -> TimelineEvent {
    let detail = Detail { value: value.map(Value::Units), ..Detail::default() };
    TimelineEvent { detail, ..TimelineEvent::new(lane, at_us, kind) }
}

fn timeline(events: Vec<TimelineEvent>) -> Timeline {
    let lanes = ["a", "b", "c"]
        .map(|name| TimelineLane { name: name.to_owned(), ..TimelineLane::default() });
    let mut timeline = Timeline { lanes: lanes.into(), events };
    timeline.mark_stale_writes();
    timeline
}

fn marked(timeline: &Timeline, is_marked: impl Fn(&Detail) -> bool) -> Vec<usize> {
    let events = timeline.events.iter().enumerate();
    events.filter(|(_, event)| is_marked(&event.detail)).map(|(index, _)| index).collect()
}

fn stale(timeline: &Timeline) -> Vec<usize> {
    marked(timeline, |detail| detail.is_loss)
}

fn wrong(timeline: &Timeline) -> Vec<usize> {
    marked(timeline, |detail| detail.is_wrong)
}

fn times(timeline: &Timeline, are_all: bool) -> Vec<(u64, u64)> {
    timeline.overlaps(are_all).iter().map(|it| (it.from_us, it.to_us)).collect()
}

#[test]
fn stale_write_overwrites_unread_value() {
    let mut timeline = timeline(vec![
        event(1, 2, EventKind::Read, Some(41)),
        event(2, 1, EventKind::Read, Some(41)),
        event(3, 1, EventKind::Write, Some(40)),
        event(4, 2, EventKind::Write, Some(40)),
        event(5, 0, EventKind::Read, Some(40)),
        event(6, 0, EventKind::Write, Some(39)),
    ]);
    assert_eq!(stale(&timeline), [3]);
    let overlaps = timeline.overlaps(false);
    assert_eq!(
        overlaps,
        [Overlap {
            from_us: 2,
            to_us: 3,
            read: 0,
            value: Some(Value::Units(41)),
            lanes: BTreeSet::from([1, 2])
        }]
    );
    timeline.put_involved_lanes_first(&overlaps);
    let names: String = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!((names.as_str(), timeline.events[0].lane), ("bca", 1));
}

#[test]
fn overlaps_of_one_time_are_one() {
    let reads = (0..3).map(|lane| event(1 + lane as u64, lane, EventKind::Read, Some(41)));
    let ends = (0..3).map(|lane| event(4 + lane as u64, lane, EventKind::Answered, None));
    let timeline = timeline(reads.chain(ends).collect());
    let overlaps = timeline.overlaps(true);
    let lanes = BTreeSet::from([0, 1, 2]);
    let value = Some(Value::Units(41));
    assert_eq!(overlaps, [Overlap { from_us: 2, to_us: 5, read: 0, value, lanes }]);
}

#[test]
fn refused_write_loses_nothing() {
    let timeline = timeline(vec![
        event(1, 0, EventKind::Read, Some(41)),
        event(2, 1, EventKind::Read, Some(41)),
        event(3, 1, EventKind::Write, Some(40)),
        event(4, 0, EventKind::Write, Some(40)),
        event(5, 0, EventKind::Refused, None),
        event(6, 0, EventKind::Read, Some(40)),
        event(7, 2, EventKind::Read, Some(40)),
        event(8, 0, EventKind::Write, Some(39)),
        event(9, 0, EventKind::Refused, None),
        event(10, 2, EventKind::Write, Some(39)),
    ]);
    assert_eq!(stale(&timeline), [0; 0]);
}

/// The response to a write may arrive after another client has read the new value.
#[test]
fn read_of_new_value_is_not_stale() {
    let timeline = timeline(vec![
        event(10, 0, EventKind::Read, Some(41)),
        event(20, 1, EventKind::Read, Some(40)),
        event(21, 0, EventKind::Write, Some(40)),
        event(30, 1, EventKind::Write, Some(39)),
    ]);
    assert_eq!(stale(&timeline), [0; 0]);
    assert_eq!(times(&timeline, false), []);
    assert_eq!(times(&timeline, true), [(20, 21)]);
}

#[test]
fn sold_out_readers_do_not_overlap() {
    let timeline = timeline(vec![
        event(1, 0, EventKind::Read, Some(0)),
        event(2, 1, EventKind::Read, Some(0)),
        event(3, 0, EventKind::Answered, None),
        event(4, 1, EventKind::Answered, None),
    ]);
    assert_eq!(times(&timeline, false), []);
}

#[test]
fn killed_client_holds_nothing() {
    let timeline = timeline(vec![
        event(0, 0, EventKind::Wait, None),
        event(1, 0, EventKind::Held, None),
        event(2, 0, EventKind::Paused, None),
        event(3, 0, EventKind::Killed, None),
        event(4, 1, EventKind::Held, None),
    ]);
    assert_eq!(names(&timeline), ["waiting", "lock", "lock", "idle", "lock"]);
    assert_eq!(paused(&timeline), [2]);
}

/// Returns the events after which their lanes are paused.
fn paused(timeline: &Timeline) -> Vec<usize> {
    let states = timeline.states().into_iter().enumerate();
    states.filter(|(_, state)| state.is_paused()).map(|(index, _)| index).collect()
}

fn names(timeline: &Timeline) -> Vec<&'static str> {
    timeline.states().iter().map(|it| it.activity.name()).collect()
}

/// Who waits for a second lock still has the first one; who asks for the same one again has none.
#[test]
fn first_lock_is_held_while_the_second_is_awaited() {
    let of = |kind, key: &str| TimelineEvent { key: key.to_owned(), ..event(0, 0, kind, None) };
    let told = |second: &str, end: EventKind| {
        let events = vec![
            of(EventKind::Wait, "tea"),
            of(EventKind::Held, "tea"),
            of(EventKind::Wait, second),
            of(end, second),
        ];
        names(&timeline(events))
    };
    assert_eq!(told("coffee", EventKind::Held), ["waiting", "lock", "both", "lock"]);
    assert_eq!(told("coffee", EventKind::Deadlock), ["waiting", "lock", "both", "idle"]);
    assert_eq!(told("coffee", EventKind::Expired), ["waiting", "lock", "both", "over"]);
    assert_eq!(told("tea", EventKind::Held), ["waiting", "lock", "waiting", "lock"]);
}

/// A holder that is paused has its lock until its lease is over, and then works on without one; red
/// from where it goes on, if it writes what is stored.
#[test]
fn paused_holder_has_its_lock_until_lease_ends() {
    let lane = |last: EventKind| {
        timeline(vec![
            event(0, 0, EventKind::Held, None),
            event(1, 0, EventKind::Read, Some(10)),
            event(2, 0, EventKind::Paused, None),
            event(3, 0, EventKind::Expired, None),
            event(4, 0, EventKind::Resumed, None),
            event(5, 0, last, Some(9)),
            event(6, 0, EventKind::Lost, None),
        ])
    };
    let refused = lane(EventKind::Refused);
    assert_eq!(names(&refused), ["lock", "lock", "lock", "over", "over", "over", "idle"]);
    let written = lane(EventKind::Write);
    assert_eq!(names(&written), ["lock", "lock", "lock", "over", "unsafe", "unsafe", "idle"]);
    assert_eq!(paused(&written), [2, 3]);
}

#[test]
fn stopped_process_is_paused_within_pause_of_request() {
    let timeline = timeline(vec![
        event(0, 0, EventKind::Held, None),
        event(1, 0, EventKind::Paused, None),
        event(2, 0, EventKind::Stopped, None),
        event(3, 0, EventKind::Renewed, None),
        event(4, 0, EventKind::Continued, None),
        event(5, 0, EventKind::Resumed, None),
    ]);
    assert_eq!(names(&timeline), ["lock"; 6]);
    assert_eq!(paused(&timeline), [1, 2, 3, 4]);
}

#[test]
fn locks_of_dead_and_careless_holders_are_left() {
    let timeline = timeline(vec![
        event(0, 0, EventKind::Held, None),
        event(1, 0, EventKind::Killed, None),
        event(2, 1, EventKind::Held, None),
        event(3, 1, EventKind::Left, None),
        event(4, 1, EventKind::Answered, None),
        event(5, 1, EventKind::Expired, None),
        event(6, 0, EventKind::Gone, None),
        event(7, 2, EventKind::Wait, None),
        event(8, 2, EventKind::Busy, None),
    ]);
    let expected =
        ["lock", "behind", "lock", "behind", "behind", "idle", "idle", "waiting", "idle"];
    assert_eq!(names(&timeline), expected);
}

/// The lock is released before the commit: the second holder reads the old value, and its write
/// comes after the first one's commit.
#[test]
fn write_after_unseen_commit_is_stale() {
    let mut events = vec![
        event(0, 0, EventKind::Read, Some(10)),
        event(1, 0, EventKind::Write, Some(9)),
        event(2, 1, EventKind::Read, Some(10)),
        event(3, 0, EventKind::Committed, None),
        event(4, 1, EventKind::Write, Some(9)),
        event(5, 1, EventKind::Committed, None),
    ];
    assert_eq!(stale(&timeline(events.clone())), [4]);
    // The first one was rolled back.
    events.remove(3);
    assert_eq!(stale(&timeline(events)), [0; 0]);
}

/// The holder whose lease is over wrote what it should not have; the update of the rightful holder
/// is the one without effect. Where no lane has a lock, the later write is to blame.
#[test]
fn holder_without_lock_is_to_blame() {
    let events = |ends: &[EventKind]| {
        let mut events = vec![
            event(0, 0, EventKind::Held, None),
            event(1, 0, EventKind::Read, Some(10)),
            event(3, 1, EventKind::Held, None),
            event(4, 1, EventKind::Read, Some(10)),
            event(5, 0, EventKind::Write, Some(9)),
            event(7, 0, EventKind::Committed, None),
            event(8, 1, EventKind::Write, Some(9)),
            event(10, 1, EventKind::Committed, None),
        ];
        let ends = ends.iter().zip([(2, 0), (9, 1)]);
        events.extend(ends.map(|(kind, (at_us, lane))| event(at_us, lane, kind.clone(), None)));
        events.sort_by_key(|event| event.at_us);
        timeline(events)
    };
    let outlived = events(&[EventKind::Expired]);
    assert_eq!((stale(&outlived), wrong(&outlived)), (vec![7], vec![5]));
    let both = events(&[EventKind::Gone, EventKind::Gone]);
    assert_eq!((stale(&both), wrong(&both)), (vec![7], vec![5, 7]));

    let mut without = outlived;
    without.events.retain(|event| event.kind != EventKind::Held);
    without.events.iter_mut().for_each(|event| event.detail.is_wrong = false);
    without.blame();
    assert_eq!((stale(&without), wrong(&without)), (vec![5], vec![5]));
}

/// It releases its lock before its commit, so that the next holder reads the old value.
#[test]
fn early_release_is_to_blame() {
    let timeline = timeline(vec![
        event(0, 0, EventKind::Held, None),
        event(1, 0, EventKind::Read, Some(10)),
        event(2, 0, EventKind::Write, Some(9)),
        event(3, 0, EventKind::Release, None),
        event(4, 1, EventKind::Held, None),
        event(5, 1, EventKind::Read, Some(10)),
        event(6, 0, EventKind::Committed, None),
        event(7, 1, EventKind::Write, Some(9)),
        event(8, 1, EventKind::Committed, None),
        event(9, 1, EventKind::Release, None),
    ]);
    assert_eq!((stale(&timeline), wrong(&timeline)), (vec![7], vec![2]));
}

/// Nodes that grant the lock one after another are one change; a lease that is over frees them, as
/// does a lock that is gone. Two are holders from the second one's lock on, until the first one
/// learns that it has lost it.
#[test]
fn nodes_have_one_owner_each() {
    let granted = |at_us, lane, node| event(at_us, lane, EventKind::Granted, Some(node));
    let timeline = timeline(vec![
        event(0, 0, EventKind::Held, None),
        granted(1, 0, 1),
        granted(2, 0, 2),
        granted(3, 0, 9),
        granted(4, 0, 5),
        event(5, 0, EventKind::Expired, None),
        event(6, 1, EventKind::Held, None),
        granted(7, 1, 1),
        event(8, 0, EventKind::Lost, None),
        event(9, 1, EventKind::Release, None),
        granted(10, 2, 3),
        event(11, 2, EventKind::Gone, None),
    ]);
    let expected = [
        (2, [Some(0), Some(0), None, None, None]),
        (4, [Some(0), Some(0), None, None, Some(0)]),
        (5, [None; 5]),
        (7, [Some(1), None, None, None, None]),
        (9, [None; 5]),
        (10, [None, None, Some(2), None, None]),
        (11, [None; 5]),
    ];
    assert_eq!(timeline.grants(), expected);
    let lanes = BTreeSet::from([0, 1]);
    let both = Overlap { from_us: 6, to_us: 8, read: 6, value: None, lanes };
    assert_eq!(timeline.shared_holds(), [both]);
}

#[test]
fn writes_of_other_values_are_no_loss() {
    let mut events = vec![
        event(0, 0, EventKind::Read, Some(10)),
        event(1, 1, EventKind::Read, Some(10)),
        event(2, 1, EventKind::Write, Some(9)),
        event(3, 0, EventKind::Write, Some(9)),
    ];
    assert_eq!(stale(&timeline(events.clone())), [3]);
    for event in events.iter_mut().filter(|event| event.lane == 1) {
        event.detail.key = Some("sku other".to_owned());
    }
    assert_eq!(stale(&timeline(events)), [0; 0]);
}

/// An actor that sends no request shows no commit.
#[test]
fn last_write_ends_work() {
    let timeline = timeline(vec![
        event(0, 0, EventKind::Read, Some(10)),
        event(1, 1, EventKind::Read, Some(10)),
        event(2, 0, EventKind::Write, Some(9)),
        event(3, 1, EventKind::Write, Some(9)),
        event(4, 1, EventKind::Committed, None),
    ]);
    assert_eq!(names(&timeline), ["working", "working", "idle", "working", "idle"]);
}

/// A release before the commit ends no work: the next holder reads what is about to change.
#[test]
fn work_lasts_until_its_commit() {
    let timeline = timeline(vec![
        event(0, 0, EventKind::Read, Some(10)),
        event(1, 0, EventKind::Write, Some(9)),
        event(2, 0, EventKind::Release, None),
        event(3, 1, EventKind::Read, Some(10)),
        event(4, 0, EventKind::Committed, None),
        event(5, 1, EventKind::Write, Some(9)),
        event(6, 1, EventKind::Committed, None),
    ]);
    assert_eq!((stale(&timeline), times(&timeline, false)), (vec![5], vec![(3, 4)]));
}
