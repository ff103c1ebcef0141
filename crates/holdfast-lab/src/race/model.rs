//! A race as the API shows it: a run under one lock, whose lanes are the buyers' orders.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::lessons::LEASE_MS;
use crate::run::{DescribedEvent, LabRun, LabRunState, Lane, RunRequest};
use holdfast_base::messages::{Message, message};
use holdfast_shop::Strategy;
use holdfast_story::{EventKind, TimelineEvent};

pub const MAX_RACE_BUYERS: u16 = 200;
const MAX_RACE_STOCK: i64 = 1_000;
/// Strategies of a race. Others leave keys behind, need several Redis, or show nothing more.
pub const RACE_LOCKS: [&str; 5] = ["none", "local", "owner", "fenced", "row-lock"];
/// Results of a lane, beside the names of problem types.
pub const SOLD: &str = "sold";
pub const SOLD_OUT: &str = "sold-out";
pub const NO_ANSWER: &str = "no-answer";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RaceRequest {
    /// Strategy of the orders: `none`, `local`, `owner`, `fenced` or `row-lock`.
    #[schema(example = "none", pattern = "^(none|local|owner|fenced|row-lock)$")]
    pub lock: String,
    /// Buyers, each of whom orders one unit: 1 to 200. Two meet for certain; more arrive at random.
    #[schema(minimum = 1, maximum = 200, example = 2)]
    pub buyers: u16,
    /// Units that exist: 0 to 1,000.
    #[schema(minimum = 0, maximum = 1000, example = 1)]
    pub stock: i64,
    /// Seed of the arrival times; a random one if absent.
    #[serde(default)]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 4_294_967_295_i64)]
    pub seed: Option<u32>,
    /// Pauses the first of two orders between its read and its write, until the second one is
    /// answered: past its lease of 300 ms, if its lock has one, which nobody renews meanwhile. No
    /// process is stopped, and at most two such races run at once.
    #[serde(default)]
    pub pause: bool,
}

impl RaceRequest {
    pub fn invalid_field(&self) -> Option<(&'static str, Message)> {
        if !RACE_LOCKS.contains(&self.lock.as_str()) {
            return Some(("lock", message!("problem-one-of", names = RACE_LOCKS.join(", "))));
        }
        if !(1..=MAX_RACE_BUYERS).contains(&self.buyers) {
            return Some(("buyers", message!("problem-number", least = 1, most = MAX_RACE_BUYERS)));
        }
        if !(0..=MAX_RACE_STOCK).contains(&self.stock) {
            return Some(("stock", message!("problem-number", least = 0, most = MAX_RACE_STOCK)));
        }
        if self.pause && self.buyers != 2 {
            return Some(("pause", message!("problem-pause-of-two")));
        }
        None
    }

    pub(super) fn to_run(&self) -> RunRequest {
        RunRequest {
            strategies: vec![self.lock.clone()],
            stock: Some(self.stock),
            buyers: Some(self.buyers.into()),
            orders: Some(self.buyers.into()),
            seed: self.seed.map(u64::from),
            // Only a pause has a lease of its own.
            ttl_ms: self.pause.then_some(LEASE_MS),
            ..RunRequest::default()
        }
    }

    pub fn is_protected(&self) -> bool {
        Strategy::named(&self.lock).is_some_and(|strategy| !strategy.is_broken())
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Race {
    pub id: Uuid,
    pub state: LabRunState,
    /// Position in the queue, from 1, while it is queued.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<i64>,
    /// Strategy of its orders.
    pub lock: String,
    pub buyers: u16,
    /// Units that existed.
    pub stock: i64,
    /// Whether the first of two orders was paused between its read and its write.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub pause: bool,
    #[serde(flatten)]
    pub result: Option<RaceResult>,
}

/// The result of a race, from the item's audit and the traces of its orders.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RaceResult {
    /// Units in the orders that were placed.
    pub sold: i64,
    /// Units sold that never existed.
    pub oversold: i64,
    /// Versions of the stock from which several orders were computed.
    pub forks: i64,
    /// Units that the row of the item says are left.
    pub left: i64,
    pub lanes: Vec<RaceLane>,
    /// Address of the item's ledger.
    pub ledger: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RaceLane {
    /// `A` and `B`, or a number in a crowd.
    pub buyer: String,
    pub replica: String,
    /// `sold`, `sold-out`, `no-answer` within the time of the race, or another problem type.
    pub result: String,
    /// The trace, from `sent` to `answered`, which are the buyer's own.
    #[schema(value_type = Vec<DescribedEvent>)]
    pub events: Vec<TimelineEvent<()>>,
}

/// Two recorded races, which a page without scripts shows: responses of `GET /api/race/{id}`, which
/// `script/race-picture` records.
pub static WITHOUT_LOCK: LazyLock<Race> =
    LazyLock::new(|| recorded(include_str!("recorded/off.json")));
pub static WITH_LOCK: LazyLock<Race> = LazyLock::new(|| recorded(include_str!("recorded/on.json")));

fn recorded(json: &str) -> Race {
    serde_json::from_str(json).unwrap_or_default()
}

impl From<LabRun> for Race {
    fn from(run: LabRun) -> Self {
        let request = run.request;
        let buyers = request.buyers.and_then(|buyers| u16::try_from(buyers).ok());
        let arm = run.outcome.arms.first().filter(|_| run.state == LabRunState::Done);
        let result = arm.map(|arm| RaceResult {
            sold: arm.sold,
            oversold: arm.oversold,
            forks: arm.forks,
            left: arm.stock,
            lanes: run.outcome.lanes.into_iter().map(RaceLane::of).collect(),
            ledger: format!("/items/{}", arm.sku.as_deref().unwrap_or_default()),
        });

        Self {
            id: run.id,
            state: run.state,
            position: run.position,
            lock: request.strategies.into_iter().next().unwrap_or_default(),
            buyers: buyers.unwrap_or_default(),
            stock: request.stock.unwrap_or_default(),
            pause: request.ttl_ms.is_some(),
            result,
        }
    }
}

impl Race {
    /// Returns whether the lock of its orders ends with its lease, also if the holder still works.
    pub fn has_lease(&self) -> bool {
        let strategy = Strategy::named(&self.lock);
        strategy.is_some_and(|strategy| strategy.lock_in_redis().is_some())
    }
}

impl RaceResult {
    pub fn replicas(&self) -> usize {
        self.lanes.iter().map(|lane| &lane.replica).collect::<BTreeSet<_>>().len()
    }

    pub fn doubled(&self) -> usize {
        self.doubled_lanes().count()
    }

    /// Returns the lanes whose order was computed from a value that an earlier order had used.
    pub fn doubled_lanes(&self) -> impl Iterator<Item = &RaceLane> {
        let mut sold: Vec<&RaceLane> =
            self.lanes.iter().filter(|lane| lane.result == SOLD).collect();
        sold.sort_by_key(|lane| lane.at(&EventKind::Write));
        let mut used = BTreeSet::new();
        sold.into_iter().filter(move |lane| !used.insert(lane.value_at(&EventKind::Read)))
    }

    /// Returns the lane whose write was the later one of two from the same value, whether it was
    /// stored or rejected.
    pub fn late_lane(&self) -> Option<&RaceLane> {
        let is_rejected = |lane: &&RaceLane| lane.event(&EventKind::Refused).is_some();
        self.doubled_lanes().next().or_else(|| self.lanes.iter().find(is_rejected))
    }
}

impl RaceLane {
    fn of(lane: Lane) -> Self {
        let result = match lane.status {
            Some(201) => SOLD,
            _ => lane.problem.as_deref().unwrap_or(NO_ANSWER),
        };

        let mut events = vec![TimelineEvent::new((), lane.sent_us, EventKind::Sent)];
        events.extend(
            lane.events.into_iter().map(|event| TimelineEvent { key: String::new(), ..event }),
        );
        events.extend(
            lane.answered_us.map(|at_us| TimelineEvent::new((), at_us, EventKind::Answered)),
        );

        Self {
            buyer: lane.label.english(),
            replica: lane.replica,
            result: result.to_owned(),
            events,
        }
    }

    pub fn event(&self, kind: &EventKind) -> Option<&TimelineEvent<()>> {
        self.events.iter().find(|event| event.kind == *kind)
    }

    pub fn at(&self, kind: &EventKind) -> Option<u64> {
        self.event(kind).map(|event| event.at_us)
    }

    pub fn value_at(&self, kind: &EventKind) -> Option<i64> {
        self.event(kind).and_then(TimelineEvent::number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_races_show_oversell_and_cure() {
        let figures = |race: &Race| race.result.as_ref().map(|it| (it.sold, it.oversold, it.forks));
        assert_eq!(figures(&WITHOUT_LOCK), Some((2, 1, 1)));
        assert_eq!(figures(&WITH_LOCK), Some((1, 0, 0)));
    }
}
