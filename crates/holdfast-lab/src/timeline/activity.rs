//! What each lane does between its events, which lanes worked on one value at the same time, and
//! which writes lost an update.

use std::collections::{BTreeMap, BTreeSet};

use strum::IntoStaticStr;

use super::Timeline;
use super::event::EventKind;

/// What a lane does after an event; its text is its name in the style of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Activity {
    Idle,
    Waiting,
    Lock,
    Paused,
    /// It has read a value and not written it yet, without a lock.
    Working,
}

impl Activity {
    /// Those that a legend explains.
    pub const SHOWN: [Self; 4] = [Self::Waiting, Self::Lock, Self::Paused, Self::Working];

    pub fn legend(self) -> &'static str {
        match self {
            Self::Idle => "",
            Self::Waiting => "swimlane-legend-waiting",
            Self::Lock => "swimlane-legend-lock",
            Self::Paused => "swimlane-label-paused",
            Self::Working => "swimlane-legend-working",
        }
    }

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A time in which several lanes worked on one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub from_us: u64,
    pub to_us: u64,
    /// Index of the first read.
    pub read: usize,
    pub lanes: BTreeSet<usize>,
}

/// Returns whether nothing that a lane did goes on after an event.
fn ends_lane(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Release
            | EventKind::Lost
            | EventKind::End
            | EventKind::Killed
            | EventKind::Answered
            | EventKind::Broken
    )
}

/// The time between a lane's read and the end of its write.
#[derive(Debug, Clone, Copy)]
struct Work {
    read: usize,
    to_us: u64,
    has_written: bool,
    is_loss: bool,
}

/// Adds the next overlap by time, or extends the last one if they touch.
fn merge(overlaps: &mut Vec<Overlap>, next: Overlap) {
    match overlaps.last_mut().filter(|last| next.from_us <= last.to_us) {
        Some(last) => {
            last.to_us = last.to_us.max(next.to_us);
            last.read = last.read.min(next.read);
            last.lanes.extend(next.lanes);
        }
        None => overlaps.push(next),
    }
}

impl Timeline {
    /// Returns, for each event, what its lane does from then on.
    pub fn activities(&self) -> Vec<Activity> {
        let mut lanes = vec![Activity::Idle; self.lanes.len()];
        let mut paused = lanes.clone();
        let mut activities = Vec::with_capacity(self.events.len());

        for event in &self.events {
            let now = &mut lanes[event.lane];
            match event.kind {
                EventKind::Wait => *now = Activity::Waiting,
                EventKind::Held => *now = Activity::Lock,
                EventKind::Read if *now != Activity::Lock => *now = Activity::Working,
                EventKind::Committed | EventKind::Refused if *now == Activity::Working => {
                    *now = Activity::Idle;
                }
                EventKind::Paused => {
                    paused[event.lane] = std::mem::replace(now, Activity::Paused);
                }
                EventKind::Resumed => *now = paused[event.lane],
                _ if ends_lane(&event.kind) => *now = Activity::Idle,
                _ => {}
            }
            activities.push(*now);
        }
        activities
    }

    /// Returns the times in which two lanes worked on one value. Without `are_all`, only those that
    /// endanger an update, where both read one value and wrote, or one of them lost its update:
    /// responses arrive late, so other lanes may seem to overlap.
    pub fn overlaps(&self, are_all: bool) -> Vec<Overlap> {
        let mut works = self.works();
        works.sort_by_key(|work| work.read);

        // In order of the second read, at which an overlap begins.
        let mut overlaps = Vec::new();
        for (index, second) in works.iter().enumerate() {
            for first in &works[..index] {
                if let Some(overlap) = self.overlap(first, second, are_all) {
                    merge(&mut overlaps, overlap);
                }
            }
        }
        overlaps
    }

    /// Returns the time in which two works overlap, if it counts. `first` has read before `second`.
    fn overlap(&self, first: &Work, second: &Work, are_all: bool) -> Option<Overlap> {
        let [one, other] = [first, second].map(|work| &self.events[work.read]);
        let is_same = one.detail.value.is_some() && one.detail.value == other.detail.value;
        let is_risk = is_same && first.has_written && second.has_written;
        let counts = are_all || is_risk || first.is_loss || second.is_loss;

        let to_us = first.to_us.min(second.to_us);
        let lanes = BTreeSet::from([one.lane, other.lane]);
        let overlaps = counts && lanes.len() == 2 && other.at_us < to_us;
        overlaps.then_some(Overlap { from_us: other.at_us, to_us, read: first.read, lanes })
    }

    fn works(&self) -> Vec<Work> {
        let committed = self.events.iter().filter(|event| event.kind == EventKind::Committed);
        let commits: BTreeSet<usize> = committed.map(|event| event.lane).collect();

        // A lane whose write is not among the events works until the last of them.
        let to_us = self.events.last().map_or(0, |last| last.at_us);
        let mut open: BTreeMap<usize, Work> = BTreeMap::new();
        let mut done = Vec::new();

        for (read, event) in self.events.iter().enumerate() {
            if event.kind == EventKind::Read {
                let work = Work { read, to_us, has_written: false, is_loss: false };
                open.entry(event.lane).or_insert(work);
            }

            let Some(work) = open.get_mut(&event.lane) else { continue };
            work.has_written |= event.kind == EventKind::Write;
            work.is_loss |= event.detail.is_loss;

            // A write is over with its commit, if the lane shows one.
            let is_over = match event.kind {
                EventKind::Write => !commits.contains(&event.lane),
                EventKind::Committed | EventKind::Refused => true,
                _ => ends_lane(&event.kind),
            };
            if is_over {
                work.to_us = event.at_us;
                done.extend(open.remove(&event.lane));
            }
        }

        done.extend(open.into_values());
        done
    }

    /// Marks the writes that lost an update: since the writer's read, another lane had written
    /// another value than the one that was read. A write that was rejected is none.
    pub fn mark_stale_writes(&mut self) {
        let next = self.next_in_lane();
        let mut writes = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            let is_refused =
                next[index].is_some_and(|next| self.events[next].kind == EventKind::Refused);
            if event.kind == EventKind::Write && !is_refused {
                writes.push(index);
            }
        }

        for (place, write) in writes.iter().enumerate() {
            self.events[*write].detail.is_loss |= self.is_stale(*write, &writes[..place]);
        }
    }

    /// Returns whether a write lost an update, given the writes before it.
    fn is_stale(&self, write: usize, before: &[usize]) -> bool {
        let lane = self.events[write].lane;
        let own_read = self.events[..write]
            .iter()
            .rposition(|event| event.lane == lane && event.kind == EventKind::Read);
        let Some(read) = own_read else { return false };

        let since = before.iter().rev().take_while(|other| **other > read);
        let mut others = since.map(|other| &self.events[*other]).filter(|other| other.lane != lane);
        others.next().is_some_and(|other| other.detail.value != self.events[read].detail.value)
    }

    /// Moves the lanes that took part in an overlap or lost an update before the others.
    pub fn put_involved_lanes_first(&mut self, overlaps: &[Overlap]) {
        let losses = self.events.iter().filter(|event| event.detail.is_loss);
        let mut involved: BTreeSet<usize> = losses.map(|event| event.lane).collect();
        involved.extend(overlaps.iter().flat_map(|overlap| &overlap.lanes));

        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        order.sort_by_key(|lane| !involved.contains(lane));
        let mut places = vec![0; order.len()];
        for (place, lane) in order.iter().enumerate() {
            places[*lane] = place;
        }

        for event in &mut self.events {
            event.lane = places[event.lane];
        }
        let lanes = order.into_iter().map(|lane| self.lanes[lane].clone());
        self.lanes = lanes.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Detail, Event, TimelineLane, Value};

    fn event(at_us: u64, lane: usize, kind: EventKind, value: Option<i64>) -> Event {
        let detail = Detail { value: value.map(Value::Units), ..Detail::default() };
        Event { lane, at_us, kind, detail }
    }

    fn timeline(events: Vec<Event>) -> Timeline {
        let lanes = ["a", "b", "c"]
            .map(|name| TimelineLane { name: name.to_owned(), ..TimelineLane::default() });
        let mut timeline = Timeline { lanes: lanes.into(), events };
        timeline.mark_stale_writes();
        timeline
    }

    fn stale(timeline: &Timeline) -> Vec<usize> {
        let events = timeline.events.iter().enumerate();
        events.filter(|(_, event)| event.detail.is_loss).map(|(index, _)| index).collect()
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
            [Overlap { from_us: 2, to_us: 3, read: 0, lanes: BTreeSet::from([1, 2]) }]
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
        assert_eq!(overlaps, [Overlap { from_us: 2, to_us: 5, read: 0, lanes }]);
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
        let names: Vec<&str> = timeline.activities().iter().map(|it| it.name()).collect();
        assert_eq!(names, ["waiting", "lock", "paused", "idle", "lock"]);
    }
}
