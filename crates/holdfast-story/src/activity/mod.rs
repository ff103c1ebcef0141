//! What each lane does between its events, which lanes worked on one value at the same time, and
//! which writes lost an update.

mod books;
mod grants;
mod overlaps;

use std::collections::{BTreeMap, BTreeSet};

use strum::IntoStaticStr;

use crate::Timeline;
use crate::kind::EventKind;

pub use books::{Book, BookEntry};
pub use overlaps::Overlap;

/// The activity of a lane after an event; its text is its name in the style of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Activity {
    Idle,
    Waiting,
    Lock,
    /// It has a lock, and waits for another one.
    Both,
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
    pub const SHOWN: [Self; 8] = [
        Self::Waiting,
        Self::Lock,
        Self::Both,
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
            Self::Both => "swimlane-legend-both",
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

    fn has_lock(self) -> bool {
        matches!(self, Self::Lock | Self::Both)
    }

    /// Returns whether a lane has the lock, or does not know that it has lost it.
    fn acts_as_holder(self) -> bool {
        self.has_lock() || matches!(self, Self::Over | Self::Gone | Self::Unsafe)
    }
}

/// The activity of a lane, and whether it is paused: a pause changes nothing in what it has.
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

    /// `goes_on` says whether something goes on after an event: a lane whose lock is over writes
    /// later, the lock of a dead one is left, a write is followed by its commit. `is_other` says
    /// whether it concerns another lock than that of the last one which the lane got.
    fn pass(&mut self, kind: &EventKind, goes_on: bool, is_other: bool) {
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
            (EventKind::Expired | EventKind::Gone, before) if before.has_lock() && is_unsafe => {
                self.activity = Activity::Unsafe;
            }
            (EventKind::Expired, before) if before.has_lock() => self.activity = Activity::Over,
            (EventKind::Gone, before) if before.has_lock() => self.activity = Activity::Gone,
            (EventKind::Killed, Activity::Lock | Activity::Both | Activity::Left) if goes_on => {
                *self = Self { activity: Activity::Left, ..Self::IDLE };
            }
            (EventKind::Left, _) => self.activity = Activity::Left,
            (kind, Activity::Left) if kind.ends_lane() => {}

            (EventKind::Wait, before) if before.has_lock() && is_other => {
                self.activity = Activity::Both;
            }
            (EventKind::Wait, _) => self.activity = Activity::Waiting,
            (EventKind::Held, _) => self.activity = Activity::Lock,
            (EventKind::Read | EventKind::Deducted, Activity::Idle | Activity::Waiting) => {
                self.activity = Activity::Working;
            }
            (EventKind::Committed | EventKind::Refused, Activity::Working) => {
                self.activity = Activity::Idle;
            }
            (EventKind::Write, Activity::Working) if !goes_on => self.activity = Activity::Idle,
            (kind, _) if kind.ends_lane() => *self = Self::IDLE,
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
    lane: usize,
    /// The last read of the same key in its lane before it.
    read: Option<usize>,
}

/// The last write that was stored, and the last one of another lane than its.
#[derive(Debug, Default)]
struct LatestWrites {
    last: Option<StoredWrite>,
    of_another: Option<StoredWrite>,
}

impl LatestWrites {
    fn add(&mut self, write: StoredWrite) {
        let before = self.last.replace(write);
        if before.is_some_and(|before| before.lane != write.lane) {
            self.of_another = before;
        }
    }

    /// Returns the last write of another lane than this one.
    fn of_others(&self, lane: usize) -> Option<StoredWrite> {
        self.last.filter(|last| last.lane != lane).or(self.of_another)
    }
}

impl Timeline {
    /// Returns, for each event, what its lane does from then on.
    pub fn states(&self) -> Vec<LaneState> {
        let next = self.next_in_lane();
        let goes_on = self.goes_on(&next);
        // Each with the key of the last lock that it got.
        let mut lanes = vec![(LaneState::IDLE, ""); self.lanes.len()];

        let states = self.events.iter().zip(goes_on).map(|(event, goes_on)| {
            let (lane, key) = &mut lanes[event.lane];
            lane.pass(&event.kind, goes_on, *key != event.key);
            if event.kind == EventKind::Held {
                *key = &event.key;
            }
            *lane
        });
        states.collect()
    }

    /// Returns, for each event, whether something goes on after it, as [`LaneState::pass`] asks.
    fn goes_on(&self, next: &[Option<usize>]) -> Vec<bool> {
        let kind = |index: usize| &self.events[index].kind;
        let is_end = |index: usize| matches!(kind(index), EventKind::Expired | EventKind::Gone);
        let last_held = self.events.iter().rposition(|event| event.kind == EventKind::Held);

        // From the last event on: what follows an event is that of the next one, and more.
        let mut writes_later = vec![false; self.events.len()];
        let mut ends_later = vec![false; self.events.len()];
        let mut goes_on = vec![false; self.events.len()];
        for index in (0..self.events.len()).rev() {
            if let Some(next_index) = next[index] {
                // The lane stores a write, before it has a new lock.
                writes_later[index] = *kind(next_index) != EventKind::Held
                    && (self.is_accepted(next_index, next) || writes_later[next_index]);
                ends_later[index] = is_end(next_index) || ends_later[next_index];
            }

            goes_on[index] = match kind(index) {
                // Its lock is known to outlive it: until it is gone, or to the end if no other lane
                // gets one.
                EventKind::Killed => ends_later[index] || last_held.is_none_or(|held| held < index),
                EventKind::Write => next[index].is_some(),
                _ => writes_later[index],
            };
        }
        goes_on
    }

    /// Returns whether an event is a write that was not rejected.
    fn is_accepted(&self, index: usize, next: &[Option<usize>]) -> bool {
        let is_refused =
            next[index].is_some_and(|next| self.events[next].kind == EventKind::Refused);
        self.events[index].kind == EventKind::Write && !is_refused
    }

    /// Marks the writes that lost an update: since the writer's read, another lane had stored
    /// another value than the one that was read.
    pub fn mark_stale_writes(&mut self) {
        for [late, _] in self.stale_writes() {
            self.events[late.write].detail.is_loss = true;
        }
        self.blame();
    }

    /// Marks, for each update that is lost, the write that should not have happened: of the two
    /// those whose lane had the lock at its read, and none any more when it was stored. If both
    /// had it, or neither, that is the later one.
    pub fn blame(&mut self) {
        let states = self.states();
        let has_lock = |event: usize| states[event].activity.has_lock();
        let outlived =
            |write: &StoredWrite| write.read.is_some_and(has_lock) && !has_lock(write.done);

        let lost = (0..self.events.len()).filter(|index| self.events[*index].detail.is_loss);
        let mut wrong: BTreeSet<usize> = lost.collect();
        for [late, early] in self.stale_writes() {
            if !self.events[late.write].detail.is_loss || !outlived(&early) {
                continue;
            }
            wrong.insert(early.write);
            if !outlived(&late) {
                wrong.remove(&late.write);
            }
        }
        for write in wrong {
            self.events[write].detail.is_wrong = true;
        }
    }

    /// Returns the writes that lost an update, each with the one that it overwrote unseen, found
    /// in one pass over all in the order in which they were stored: a file of a visitor may have
    /// thousands.
    fn stale_writes(&self) -> Vec<[StoredWrite; 2]> {
        let mut writes = self.stored_writes();
        writes.sort_by_key(|write| write.done);

        let mut latest: BTreeMap<Option<&str>, LatestWrites> = BTreeMap::new();
        let mut stale = Vec::new();
        for own in writes {
            let latest = latest.entry(self.events[own.write].detail.key.as_deref()).or_default();
            let value = |index: usize| self.events[index].detail.value;
            let unseen = own
                .read
                .zip(latest.of_others(own.lane))
                .filter(|(read, other)| *read < other.done && value(other.write) != value(*read));
            stale.extend(unseen.map(|(_, other)| [own, other]));
            latest.add(own);
        }
        stale
    }

    /// Returns the writes that were neither rejected nor rolled back.
    fn stored_writes(&self) -> Vec<StoredWrite> {
        let next = self.next_in_lane();
        let commits = self.next_commits();
        let shows_commits = self.events.iter().any(|event| event.kind == EventKind::Committed);

        let mut reads = BTreeMap::new();
        let mut writes = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            let of_lane = (event.lane, event.detail.key.as_deref());
            if event.kind == EventKind::Read {
                reads.insert(of_lane, index);
            }

            let done = if shows_commits { commits[index] } else { Some(index) };
            if let Some(done) = done.filter(|_| self.is_accepted(index, &next)) {
                let read = reads.get(&of_lane).copied();
                writes.push(StoredWrite { write: index, done, lane: event.lane, read });
            }
        }
        writes
    }

    /// Returns, for each event, the index of the next commit in its lane.
    fn next_commits(&self) -> Vec<Option<usize>> {
        let mut next = vec![None; self.lanes.len()];
        let mut commits = vec![None; self.events.len()];
        for (index, event) in self.events.iter().enumerate().rev() {
            commits[index] = next[event.lane];
            if event.kind == EventKind::Committed {
                next[event.lane] = Some(index);
            }
        }
        commits
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
