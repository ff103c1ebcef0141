//! A race: its request, its state and its result.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::shop::Strategy;

pub const MAX_RACE_BUYERS: u16 = 200;
const MAX_RACE_STOCK: i64 = 1_000;
/// Strategies of a race. Others leave keys behind, need several Redis, or show nothing more.
pub const RACE_LOCKS: [&str; 5] = ["none", "local", "owner", "fenced", "row-lock"];
/// Results of a lane, beside the names of problem types.
pub const SOLD: &str = "sold";
pub const SOLD_OUT: &str = "sold-out";
pub const NO_ANSWER: &str = "no-answer";

/// A race to run.
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
}

impl RaceRequest {
    /// Returns the first invalid field and the valid values.
    pub fn invalid_field(&self) -> Option<(&'static str, String)> {
        if !RACE_LOCKS.contains(&self.lock.as_str()) {
            return Some(("lock", format!("one of {}", RACE_LOCKS.join(", "))));
        }
        if !(1..=MAX_RACE_BUYERS).contains(&self.buyers) {
            return Some(("buyers", format!("a number, 1 to {MAX_RACE_BUYERS}")));
        }
        if !(0..=MAX_RACE_STOCK).contains(&self.stock) {
            return Some(("stock", format!("a number, 0 to {MAX_RACE_STOCK}")));
        }
        None
    }

    /// Returns whether the lock protects orders that different replicas execute.
    pub fn is_protected(&self) -> bool {
        Strategy::named(&self.lock).is_some_and(|strategy| !strategy.is_broken())
    }
}

/// The state of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum RaceState {
    /// It waits for other races of its replica.
    Queued,
    /// Its orders are on their way.
    Running,
    /// It has a result.
    Done,
    /// It has none: its replica stopped, or Postgres did not respond.
    Failed,
}

/// A race, with its result once it is done.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Race {
    /// Identifies the race.
    pub id: Uuid,
    /// Its state.
    pub state: RaceState,
    /// Position in the queue, from 1, while it is queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    /// Strategy of its orders.
    pub lock: String,
    /// Number of its buyers.
    pub buyers: u16,
    /// Units that existed.
    pub stock: i64,
    /// The result, once it is done.
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
    /// One lane per buyer.
    pub lanes: Vec<RaceLane>,
    /// Address of the item's ledger.
    pub ledger: String,
}

/// One buyer's order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RaceLane {
    /// `A` and `B`, or a number in a crowd.
    pub buyer: String,
    /// Name of the replica that executed the order.
    pub replica: String,
    /// `sold`, `sold-out`, `no-answer` within the time of the race, or another problem type.
    pub result: String,
    /// The trace, in order.
    pub events: Vec<RaceEvent>,
}

/// An event of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RaceEvent {
    /// Microseconds since the first request was sent.
    pub t_us: u64,
    /// A probe point such as `read`; `sent` and `answered` are the buyer's own.
    pub event: String,
    /// Units that were read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// Fence of the lock, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<i64>,
}

impl RaceResult {
    /// Returns the number of replicas that executed orders.
    pub fn replicas(&self) -> usize {
        self.lanes.iter().map(|lane| &lane.replica).collect::<BTreeSet<_>>().len()
    }

    /// Returns the receipts for a unit that another receipt promises too.
    pub fn doubled(&self) -> usize {
        self.doubled_lanes().count()
    }

    /// Returns the lanes whose order was computed from a value that an earlier order had used.
    pub fn doubled_lanes(&self) -> impl Iterator<Item = &RaceLane> {
        let mut sold: Vec<&RaceLane> =
            self.lanes.iter().filter(|lane| lane.result == SOLD).collect();
        sold.sort_by_key(|lane| lane.at("write"));
        let mut used = BTreeSet::new();
        sold.into_iter().filter(move |lane| !used.insert(lane.value_at("read")))
    }
}

impl RaceLane {
    pub fn event(&self, name: &str) -> Option<&RaceEvent> {
        self.events.iter().find(|event| event.event == name)
    }

    /// Returns the time of the first event of that name, in microseconds.
    pub fn at(&self, name: &str) -> Option<u64> {
        self.event(name).map(|event| event.t_us)
    }

    /// Returns the value of the first event of that name.
    pub fn value_at(&self, name: &str) -> Option<i64> {
        self.event(name).and_then(|event| event.value)
    }
}
