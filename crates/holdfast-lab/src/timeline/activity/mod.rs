//! What each lane does between its events, which lanes worked on one value at the same time, and
//! which writes lost an update.

use std::collections::{BTreeMap, BTreeSet};

use strum::IntoStaticStr;

use super::Timeline;
use super::event::{Event, EventKind, Value};

/// What a lane does after an event; its text is its name in the style of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Activity {
    Idle,
    Waiting,
    Lock,
    /// It has read a value and not written it yet, without a lock.
    Working,
    /// It works as if it had the lock, but its lease is over.
    Over,
    /// It works as if it had the lock, whose key was deleted.
    Gone,
    /// As `Over` or `Gone`, and it is going to write.
    Unsafe,
    /// It is done or dead, and its lock still exists.
    #[strum(serialize = "behind")]
    Left,
}

impl Activity {
    /// Those that a legend explains.
    pub const SHOWN: [Self; 7] = [
        Self::Waiting,
        Self::Lock,
        Self::Over,
        Self::Gone,
        Self::Unsafe,
        Self::Left,
        Self::Working,
    ];

    pub fn legend(self) -> &'static str {
        match self {
            Self::Idle => "",
            Self::Waiting => "swimlane-legend-waiting",
            Self::Lock => "swimlane-legend-lock",
            Self::Working => "swimlane-legend-working",
            Self::Over => "swimlane-legend-over",
            Self::Gone => "swimlane-legend-deleted",
            Self::Unsafe => "swimlane-legend-unsafe",
            Self::Left => "swimlane-legend-behind",
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
    /// What all of them read, if it is one value.
    pub value: Option<Value>,
    pub lanes: BTreeSet<usize>,
}

/// Returns whether nothing that a lane did goes on after an event.
fn ends_lane(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Busy
            | EventKind::Release
            | EventKind::Foreign
            | EventKind::Lost
            | EventKind::Absent
            | EventKind::End
            | EventKind::Killed
            | EventKind::Disconnected
            | EventKind::Answered
            | EventKind::Broken
    )
}

/// What a lane does, and whether it is paused meanwhile: a pause changes nothing in what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneState {
    pub activity: Activity,
    is_paused: bool,
    is_stopped: bool,
}

impl LaneState {
    const IDLE: Self = Self { activity: Activity::Idle, is_paused: false, is_stopped: false };

    pub fn is_paused(self) -> bool {
        self.is_paused || self.is_stopped
    }

    /// `goes_on` tells whether something goes on after an event: a lane whose lock is over writes
    /// later, the lock of a dead one is left, a write is followed by its commit.
    fn pass(&mut self, kind: &EventKind, goes_on: bool) {
        match kind {
            EventKind::Paused => self.is_paused = true,
            EventKind::Resumed => self.is_paused = false,
            EventKind::Stopped => self.is_stopped = true,
            EventKind::Continued => self.is_stopped = false,
            _ => {}
        }
        // What is paused writes nothing until it goes on.
        let is_unsafe = goes_on && !self.is_paused();

        match (kind, self.activity) {
            (EventKind::Resumed | EventKind::Continued, Activity::Over | Activity::Gone)
                if is_unsafe =>
            {
                self.activity = Activity::Unsafe;
            }
            (EventKind::Expired | EventKind::Gone, Activity::Left) => {
                self.activity = Activity::Idle;
            }
            (EventKind::Expired | EventKind::Gone, Activity::Lock) if is_unsafe => {
                self.activity = Activity::Unsafe;
            }
            (EventKind::Expired, Activity::Lock) => self.activity = Activity::Over,
            (EventKind::Gone, Activity::Lock) => self.activity = Activity::Gone,
            (EventKind::Killed, Activity::Lock | Activity::Left) if goes_on => {
                *self = Self { activity: Activity::Left, ..Self::IDLE };
            }
            (EventKind::Left, _) => self.activity = Activity::Left,
            (kind, Activity::Left) if ends_lane(kind) => {}

            (EventKind::Wait, _) => self.activity = Activity::Waiting,
            (EventKind::Held, _) => self.activity = Activity::Lock,
            (EventKind::Read | EventKind::Deducted, Activity::Idle | Activity::Waiting) => {
                self.activity = Activity::Working;
            }
            (EventKind::Committed | EventKind::Refused, Activity::Working) => {
                self.activity = Activity::Idle;
            }
            (EventKind::Write, Activity::Working) if !goes_on => self.activity = Activity::Idle,
            (kind, _) if ends_lane(kind) => *self = Self::IDLE,
            _ => {}
        }
    }
}

/// A write that was stored.
#[derive(Debug, Clone, Copy)]
struct StoredWrite {
    write: usize,
    /// Its commit, or the write itself where no lane shows commits.
    done: usize,
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
            last.value = last.value.filter(|value| Some(*value) == next.value);
            last.lanes.extend(next.lanes);
        }
        None => overlaps.push(next),
    }
}

impl Timeline {
    /// Returns, for each event, what its lane does from then on.
    pub fn states(&self) -> Vec<LaneState> {
        let next = self.next_in_lane();
        let mut lanes = vec![LaneState::IDLE; self.lanes.len()];
        let mut states = Vec::with_capacity(self.events.len());

        for (index, event) in self.events.iter().enumerate() {
            let lane = &mut lanes[event.lane];
            let goes_on = match event.kind {
                EventKind::Killed => self.leaves_lock(index, &next),
                EventKind::Write => next[index].is_some(),
                _ => self.writes_later(index, &next),
            };
            lane.pass(&event.kind, goes_on);
            states.push(*lane);
        }
        states
    }

    /// Returns whether the lane of an event stores a write afterwards, before it has a new lock.
    fn writes_later(&self, index: usize, next: &[Option<usize>]) -> bool {
        let later = std::iter::successors(next[index], |index| next[*index]);
        let mut before_lock = later.take_while(|index| self.events[*index].kind != EventKind::Held);
        before_lock.any(|index| self.is_accepted(index, next))
    }

    /// Returns whether the lock of a dead lane is known to outlive it: until it is gone, or to the
    /// end if nobody else gets one.
    fn leaves_lock(&self, killed: usize, next: &[Option<usize>]) -> bool {
        let later = std::iter::successors(next[killed], |index| next[*index]);
        let ends = [EventKind::Expired, EventKind::Gone];
        let mut own = later.map(|index| &self.events[index].kind);
        let mut others = self.events[killed..].iter().map(|event| &event.kind);
        own.any(|kind| ends.contains(kind)) || !others.any(|kind| *kind == EventKind::Held)
    }

    /// Returns whether an event is a write that was not rejected.
    fn is_accepted(&self, index: usize, next: &[Option<usize>]) -> bool {
        let is_refused =
            next[index].is_some_and(|next| self.events[next].kind == EventKind::Refused);
        self.events[index].kind == EventKind::Write && !is_refused
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
        let value = one.detail.value.filter(|_| is_same);
        overlaps.then_some(Overlap { from_us: other.at_us, to_us, read: first.read, value, lanes })
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
                // It may release its lock before it commits.
                EventKind::Release if commits.contains(&event.lane) => false,
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

    /// Marks the writes that lost an update: since the writer's read, another lane had stored
    /// another value than the one that was read.
    pub fn mark_stale_writes(&mut self) {
        let writes = self.stored_writes();
        let stale = writes.iter().filter(|write| self.is_stale(write, &writes));
        let stale: Vec<usize> = stale.map(|write| write.write).collect();
        for write in stale {
            self.events[write].detail.is_loss = true;
        }
    }

    /// Returns the writes that were neither rejected nor rolled back.
    fn stored_writes(&self) -> Vec<StoredWrite> {
        let next = self.next_in_lane();
        let is_commit = |index: &usize| self.events[*index].kind == EventKind::Committed;
        let shows_commits = (0..self.events.len()).any(|index| is_commit(&index));

        let accepted = (0..self.events.len()).filter(|index| self.is_accepted(*index, &next));
        let stored = accepted.filter_map(|write| {
            let mut later = std::iter::successors(next[write], |index| next[*index]);
            let done = if shows_commits { later.find(is_commit)? } else { write };
            Some(StoredWrite { write, done })
        });
        stored.collect()
    }

    /// Returns whether a write lost an update, given all writes.
    fn is_stale(&self, own: &StoredWrite, writes: &[StoredWrite]) -> bool {
        let Event { lane, detail, .. } = &self.events[own.write];
        let own_read = self.events[..own.write].iter().rposition(|event| {
            let is_read = event.kind == EventKind::Read && event.detail.key == detail.key;
            is_read && event.lane == *lane
        });
        let Some(read) = own_read else { return false };

        let others = writes.iter().filter(|other| {
            let event = &self.events[other.write];
            let is_between = read < other.done && other.done < own.done;
            is_between && event.lane != *lane && event.detail.key == detail.key
        });
        let last = others.max_by_key(|other| other.done);
        last.is_some_and(|other| {
            self.events[other.write].detail.value != self.events[read].detail.value
        })
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
mod tests;
