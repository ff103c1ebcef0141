//! What several clients did at the same time: lanes with typed events, of a run's requests, a race
//! or a violation that a judge found. Pages draw it as a swimlane, the terminal lists its events.

mod activity;
mod drawing;
mod event;
mod gone;
mod kind;
mod saved;

pub use self::activity::{Activity, LaneState, Overlap};
pub use self::drawing::{Drawing, Handle};
pub use self::event::{Detail, TimelineEvent, Value, format_ms};
pub use self::gone::with_gone_locks;
pub use self::kind::EventKind;

#[derive(Debug, Clone, Default)]
pub struct Timeline {
    pub lanes: Vec<TimelineLane>,
    pub events: Vec<TimelineEvent>,
}

#[derive(Debug, Clone, Default)]
pub struct TimelineLane {
    pub name: String,
    /// Replica that served the lane's request; may be empty.
    pub replica: String,
    /// True if the unit it sold was sold before.
    pub is_duplicate: bool,
}

impl TimelineLane {
    pub fn full_name(&self) -> String {
        if self.replica.is_empty() {
            return self.name.clone();
        }
        format!("{} · {}", self.replica, self.name)
    }

    /// Returns its name without the addition: `B` of `B, after the flush`.
    pub fn short_name(&self) -> String {
        let end = self.name.find([',', '，', '(', '（']).unwrap_or(self.name.len());
        self.name[..end].trim().to_owned()
    }
}

impl Timeline {
    /// Returns events by time, with a lane for each of those that they happened to, in their order.
    pub fn of<L: Ord>(events: Vec<TimelineEvent<L>>, name: impl Fn(&L) -> String) -> Self {
        let mut owners: Vec<&L> = events.iter().map(|event| &event.lane).collect();
        owners.sort_unstable();
        owners.dedup();
        let place = |event: &TimelineEvent<L>| owners.partition_point(|owner| **owner < event.lane);
        let places: Vec<usize> = events.iter().map(place).collect();
        let lane = |owner: &&L| TimelineLane { name: name(owner), ..TimelineLane::default() };
        let lanes = owners.iter().map(lane).collect();

        let placed = events.into_iter().zip(places).map(|(event, place)| event.on(place));
        let mut events: Vec<TimelineEvent> = placed.collect();
        events.sort_by_key(|event| event.at_us);
        Self { lanes, events }
    }

    /// Returns, for each event, the index of the next one in its lane.
    pub fn next_in_lane(&self) -> Vec<Option<usize>> {
        let mut following = vec![None; self.lanes.len()];
        let mut next: Vec<Option<usize>> = Vec::with_capacity(self.events.len());
        for (index, event) in self.events.iter().enumerate().rev() {
            next.push(following[event.lane].replace(index));
        }
        next.reverse();
        next
    }
}
