//! What a run is: what is asked for, what is to be seen while it goes on, and what came of it.
//!
//! A run has one or several *arms*: the same load under one strategy after the other, each on a
//! throw-away item of its own. A lesson is a run whose steps are written down in
//! [`super::lessons`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What can be asked for: a lesson by its name, or a load of one's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Wanted {
    /// A lesson; then nothing else is said but the knobs that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lesson: Option<String>,
    /// One arm each: 1 to 6 names of strategies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<String>,
    /// What the buyers do; `order` if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journey: Option<Journey>,
    /// Units on the shelf: 0 to 10,000; 100 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stock: Option<i64>,
    /// Buyers at once: 1 to 64; 16 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buyers: Option<u32>,
    /// Orders in all, of one unit each: 1 to 5,000; 200 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orders: Option<u32>,
    /// Extra work between read and write: 0 to 1,000 ms; 0 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_ms: Option<u64>,
    /// The lease: 10 to 60,000 ms; the server's own if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// `try`, `retry` or `notify`; the strategy's own if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// From which the arrivals are drawn: the same for every arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How many of the replicas are asked: 1 to 16; all, or as many as there are, if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<usize>,
    /// What goes wrong meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// What buyers do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Journey {
    /// They order one unit of the same item.
    #[default]
    Order,
    /// They pay orders that were made before, all from one account.
    Pay,
}

/// Something that goes wrong, really.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// How long after the first order: 0 to 10,000 ms.
    #[serde(default)]
    pub at_ms: u64,
    /// For how long, where it lasts: 0 to 10,000 ms.
    #[serde(default)]
    pub for_ms: u64,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The last replica is stopped (SIGSTOP) and goes on later.
    PauseReplica,
    /// The last replica is killed (SIGKILL); it is started again.
    KillReplica,
    /// Redis is stopped (SIGSTOP) and goes on later.
    PauseRedis,
    /// Redis is killed (SIGKILL) and started again, with what it had written down.
    RestartRedis,
    /// Redis forgets everything (FLUSHALL).
    FlushRedis,
    /// The first node of the quorum is stopped (SIGSTOP) and goes on later.
    PauseNode,
}

impl FaultKind {
    /// All of them, each with its name, as in the API, and with what it is, for people.
    pub const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::PauseReplica, "pause-replica", "a replica is stopped and goes on later"),
        (Self::KillReplica, "kill-replica", "a replica is killed and started again"),
        (Self::PauseRedis, "pause-redis", "Redis is stopped and goes on later"),
        (Self::RestartRedis, "restart-redis", "Redis is killed and started again"),
        (Self::FlushRedis, "flush-redis", "Redis forgets everything"),
        (Self::PauseNode, "pause-node", "a node of the quorum is stopped and goes on later"),
    ];

    /// What it is, for people.
    pub fn about(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, about)| about)
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum State {
    /// Nobody has begun it.
    Queued,
    /// It goes on.
    Running,
    /// It came to its end.
    Done,
    /// It did not; its verdict says why.
    Failed,
}

impl State {
    pub fn is_over(self) -> bool {
        matches!(self, State::Done | State::Failed)
    }
}

/// What is to be seen while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Progress {
    /// What was done so far, in words.
    pub said: Vec<String>,
    /// How many arms there will be.
    pub arms: usize,
    /// Which one is on, from 0.
    pub arm: usize,
    /// Its strategy.
    pub strategy: String,
    /// Its figures so far, ten a second at most.
    pub samples: Vec<Sample>,
}

/// The figures of one moment of an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// Since the arm's first order, in ms.
    pub t_ms: u64,
    /// Units sold, by the ledger.
    pub sold: i64,
    /// Units on the shelf.
    pub stock: i64,
    /// Units sold that never existed.
    pub oversold: i64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests under way.
    pub waiting: u64,
    /// Half of the answers so far took at most so long, in ms.
    pub p50_ms: f64,
    /// All but a hundredth of them.
    pub p99_ms: f64,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Outcome {
    /// One per strategy.
    pub arms: Vec<Arm>,
    /// Whether the lesson's claim was seen; none without a lesson.
    pub claim_shown: Option<bool>,
    /// What the ledger, or Redis, says: one line.
    pub verdict: String,
    /// Figures beside the arms', with their names.
    pub facts: Vec<Fact>,
    /// What was done, in words.
    pub said: Vec<String>,
    /// Who did what when, for the swimlanes.
    pub lanes: Vec<Lane>,
}

/// A figure with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// How much, with its unit.
    pub value: String,
}

/// What one strategy made of the load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Arm {
    /// Its name.
    pub strategy: String,
    /// How its buyers waited for the lock, where that was wished for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// How many of the replicas were asked, where that was fewer than there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<usize>,
    /// The throw-away item, or none where accounts were paid from.
    pub sku: Option<String>,
    /// Units there were.
    pub stock_opening: i64,
    /// Units in orders that stand.
    pub sold: i64,
    /// Units left.
    pub stock: i64,
    /// Units sold that never existed.
    pub oversold: i64,
    /// Units that could have been sold, and were not.
    pub undersold: i64,
    /// Stock less what the ledger adds up to.
    pub drift: i64,
    /// Entries whose `before` is not the `after` before.
    pub breaks: i64,
    /// Versions from which more than one entry was computed.
    pub forks: i64,
    /// Orders per second that were placed.
    pub orders_per_s: f64,
    /// From request to answer, the median, in ms.
    pub wait_p50_ms: f64,
    /// The 99th percentile.
    pub wait_p99_ms: f64,
    /// No drift and no break.
    pub ok: bool,
    /// How often each status was answered. (Text, because a number can't be a key inside of
    /// something that serde flattens.)
    pub statuses: std::collections::BTreeMap<String, u64>,
    /// The curves.
    pub samples: Vec<Sample>,
    /// The first of the forks, with the requests that made them.
    pub forked: Vec<Forked>,
    /// How the waits were spread: how many answers took up to so many ms.
    pub waits: Vec<Bucket>,
}

impl Arm {
    /// What to call it: two arms may differ in more than their strategy.
    pub fn name(&self) -> String {
        let mut name = self.strategy.clone();
        if let Some(wait) = &self.wait {
            name += &format!(", {wait}");
        }
        match self.replicas {
            Some(1) => name + ", 1 replica",
            Some(replicas) => format!("{name}, {replicas} replicas"),
            None => name,
        }
    }
}

/// So many answers took no longer than that, and longer than the bucket before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Up to so many ms.
    pub up_to_ms: f64,
    /// How many.
    pub count: u64,
}

/// Entries that were computed from the same version of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// The version.
    pub version: i64,
    /// The value they read.
    pub before: i64,
    /// The entries.
    pub entries: Vec<ForkedEntry>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkedEntry {
    /// Its place in the ledger.
    pub seq: i64,
    /// What was added.
    pub delta: i64,
    /// What it wrote.
    pub after: i64,
    /// For which order.
    pub order_id: Option<Uuid>,
    /// By which request; a lane has the same.
    pub request_id: Uuid,
    /// Under which fence, where the lock has one.
    pub fence: Option<i64>,
}

/// One request on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// Which request.
    pub request_id: Uuid,
    /// What to call it.
    pub label: String,
    /// The replica that served it.
    pub replica: String,
    /// Which arm's crowd it was part of, from 0; none for a request that was sent by itself.
    pub arm: Option<usize>,
    /// When it was sent, in µs since the run's first lane.
    pub sent_us: u64,
    /// When it was answered; none when its connection broke.
    pub answered_us: Option<u64>,
    /// With which status.
    pub status: Option<u16>,
    /// What it passed meanwhile, in order.
    pub events: Vec<LaneEvent>,
}

/// One thing that happened to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneEvent {
    /// In µs since the run's first lane.
    pub t_us: u64,
    /// Its name: `wait`, `held`, `read`, `write`, `commit`, `committed`, `release`; or, from
    /// outside, `paused`, `resumed`, `killed`.
    pub event: String,
    /// The key it happened to.
    pub key: String,
    /// The value seen, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<i64>,
    /// The fence, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fence: Option<i64>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its id.
    pub id: Uuid,
    /// Where it stands.
    pub state: State,
    /// What was asked for.
    pub wanted: Wanted,
    /// What is to be seen of it.
    pub progress: Progress,
    /// What the visitor thought beforehand.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guess: Option<String>,
    /// Whether it was opened from a file: then nobody here has checked what it says.
    #[serde(default)]
    pub from_file: bool,
    /// When it was asked for.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: time::OffsetDateTime,
    /// What came of it, when it is over.
    #[serde(flatten)]
    pub outcome: Outcome,
}
