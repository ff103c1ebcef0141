//! A run as it is stored: its request, its progress and its result. Its *arms* are the same load
//! under one strategy after the other, each on its own throw-away item or account.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;
use uuid::Uuid;

use holdfast_base::messages::{Language, Message, Text, message};
use holdfast_shop::audit::ItemAudit;
use holdfast_story::TimelineEvent;

pub const MAX_BUYERS: u32 = 64;
/// Upper bound of the events of a run over all its lanes: six arms of 24 lanes with 30 events each,
/// of which an order without conflicts has eight.
pub const MAX_EVENTS: usize = 5_000;

/// A request for a run: a lesson by its name, or a custom load. The defaults are those of a custom
/// load; a lesson has its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRequest {
    /// Name of a lesson; it ignores fields that it does not use.
    pub lesson: Option<String>,
    /// Names of 1 to 6 strategies, one arm each.
    pub strategies: Vec<String>,
    /// Action of the buyers; default `order`.
    pub journey: Option<Journey>,
    /// Initial stock (for `pay`: orders that the balance covers): 0 to 10,000; default 100.
    pub stock: Option<i64>,
    /// Concurrent buyers: 1 to 64; default 16.
    pub buyers: Option<u32>,
    /// Total orders of one unit each: 1 to 5,000; default 200.
    pub orders: Option<u32>,
    /// Extra work between read and write: 0 to 1,000 ms; default 0.
    pub work_ms: Option<u64>,
    /// Lease: 10 to 60,000 ms; default: the server's.
    pub ttl_ms: Option<u64>,
    /// `try`, `retry` or `notify`; default: the strategy's.
    pub wait: Option<String>,
    /// Interval of retries: 1 to 1,000 ms; default: the server's.
    pub retry_ms: Option<u64>,
    /// In the lesson `lost-update`: the time between A's read and its write: 0 to 1,000 ms.
    pub gap_ms: Option<u64>,
    /// Seed of the arrivals, the same for every arm; default 1.
    pub seed: Option<u64>,
    /// Fault to inject during each arm.
    pub fault: Option<RunFault>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Journey {
    /// Order one unit of the same item.
    #[default]
    Order,
    /// Pay existing orders from one account.
    Pay,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `kind`: one of pause-replica, kill-replica, pause-redis, \
                 restart-redis, flush-redis, pause-node"
)]
#[schema(as = Fault)]
pub struct RunFault {
    pub kind: FaultKind,
    /// Delay after the start of the load: 0 to 10,000 ms.
    #[serde(default)]
    pub at_ms: u64,
    /// Duration of a pause: 0 to 10,000 ms. Kills and the flush ignore it.
    #[serde(default)]
    pub for_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum FaultKind {
    /// Pauses the last replica that receives requests (SIGSTOP), then resumes it.
    PauseReplica,
    /// Kills the last replica that receives requests (SIGKILL); the supervisor restarts it.
    KillReplica,
    /// Pauses Redis (SIGSTOP), then resumes it.
    PauseRedis,
    /// Kills Redis (SIGKILL); the supervisor restarts it with its persisted data.
    RestartRedis,
    /// Deletes all data in Redis (FLUSHALL).
    FlushRedis,
    /// Pauses the first node of the quorum (SIGSTOP), then resumes it.
    PauseNode,
}

impl FaultKind {
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn message(self) -> Message {
        Message::new(&format!("lab-fault-{}", self.name()))
    }

    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum LabRunState {
    /// It waits for other runs of its executor.
    #[default]
    Queued,
    Running,
    Done,
    /// Not completed; the verdict says why.
    Failed,
}

impl LabRunState {
    pub fn is_over(self) -> bool {
        matches!(self, LabRunState::Done | LabRunState::Failed)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunProgress {
    #[serde(rename = "said")]
    #[schema(value_type = Vec<String>)]
    pub steps: Vec<Text>,
    pub arms: usize,
    /// Index of the current arm, from 0.
    pub arm: usize,
    pub strategy: String,
    /// Samples of the current arm, at most ten per second.
    pub samples: Vec<Sample>,
    /// Whether the first scene is over, so that its picture can be shown during the load.
    pub has_scene: bool,
    /// Its lanes, which are stored for that picture, and not part of a response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub lanes: Vec<Lane>,
}

/// An arm at one moment. Amounts are units, or cents for payments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// Time since the load started, in ms.
    pub t_ms: u64,
    pub sold: i64,
    /// Stock or balance.
    pub stock: i64,
    pub oversold: i64,
    /// Requests that received a response or lost their connection.
    pub answered: u64,
    pub waiting: u64,
    /// Median latency of the successful requests so far.
    pub p50_ms: f64,
    pub p99_ms: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunResult {
    pub arms: Vec<ArmResult>,
    /// True if the lesson's claim was shown; `None` without a lesson, or if the run failed.
    pub claim_shown: Option<bool>,
    /// Conclusion from the ledger, or from Redis.
    #[schema(value_type = Option<String>)]
    pub verdict: Option<Text>,
    /// What the scenes of a lesson have shown, besides the one that its question asks about.
    pub scenes: Vec<SceneResult>,
    pub evidence: Vec<Evidence>,
    #[serde(rename = "said")]
    #[schema(value_type = Vec<String>)]
    pub steps: Vec<Text>,
    pub lanes: Vec<Lane>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SceneResult {
    /// Id of the scene, which its lanes have too.
    pub id: String,
    /// What it has shown, in one sentence.
    #[schema(value_type = String)]
    pub sentence: Text,
}

/// Returns what scenes have shown; of those that went another way, that nothing is shown.
pub(super) fn told(is_shown: bool, sentence: Message) -> Message {
    if is_shown { sentence } else { message!("run-not-shown", why = message!("run-other-way")) }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    #[schema(value_type = String)]
    pub name: Text,
    /// Value with its unit.
    #[schema(value_type = String)]
    pub value: Text,
    /// False if the value contradicts the claim.
    pub ok: bool,
}

/// Result of one arm. Amounts are units, or cents for payments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ArmResult {
    pub strategy: String,
    /// Waiting mode, if the request set one.
    pub wait: Option<String>,
    /// Number of replicas that received requests, if fewer than exist.
    pub replicas: Option<usize>,
    /// Throw-away item, unless the arm paid from an account.
    pub sku: Option<String>,
    pub stock_opening: i64,
    /// Units in pending and paid orders, or cents paid.
    pub sold: i64,
    /// Stock or balance that is left.
    pub stock: i64,
    /// Amount sold that never existed: how far the ledger's sum fell below zero at its worst.
    pub oversold: i64,
    /// Amount that could have been sold but was not.
    pub undersold: i64,
    /// Stock minus the sum of the ledger.
    pub drift: i64,
    /// Entries whose `before` is not the `after` of the previous entry.
    pub breaks: i64,
    /// Versions from which more than one entry was computed.
    pub forks: i64,
    pub orders_per_s: f64,
    /// Median latency of the successful requests.
    pub wait_p50_ms: f64,
    pub wait_p99_ms: f64,
    /// True if there is no drift and no break.
    pub ok: bool,
    /// Number of responses by status. Serde reads no integer keys inside a flattened struct.
    pub statuses: BTreeMap<String, u64>,
    pub samples: Vec<Sample>,
    pub forked: Vec<ForkedVersion>,
    /// Histogram of these latencies.
    pub waits: Vec<LatencyBucket>,
}

impl ArmResult {
    pub(super) fn of_item(audit: &ItemAudit, orders: i64) -> Self {
        Self {
            sku: Some(audit.sku.to_string()),
            stock_opening: audit.opening,
            sold: audit.sold,
            stock: (audit.stock - audit.unsettled).max(0),
            oversold: audit.oversold,
            undersold: (audit.opening.min(orders) - audit.sold).max(0),
            drift: audit.drift,
            breaks: audit.breaks,
            forks: i64::try_from(audit.forks.len()).unwrap_or(i64::MAX),
            ok: audit.ok,
            ..Self::default()
        }
    }

    pub fn is_sound(&self) -> bool {
        self.ok && self.forks == 0 && self.oversold == 0
    }

    pub fn is_money(&self) -> bool {
        self.sku.is_none()
    }

    /// Returns the strategy, with what arms of one strategy may differ in: the waiting mode and the
    /// number of replicas.
    pub fn name(&self, language: Language) -> String {
        self.label().text(language)
    }

    pub fn label(&self) -> Text {
        let mut name = self.strategy.clone();
        if let Some(wait) = &self.wait {
            name += &format!(", {wait}");
        }

        match self.replicas {
            Some(replicas) => message!("run-arm-replicas", name, replicas).into(),
            None => name.into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyBucket {
    /// Upper bound in ms; the lower bound is that of the previous bucket.
    pub up_to_ms: f64,
    pub count: u64,
}

/// Ledger entries that were computed from the same version of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkedVersion {
    pub version: i64,
    pub before: i64,
    pub entries: Vec<ForkedEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkedEntry {
    pub seq: i64,
    pub delta: i64,
    pub after: i64,
    pub order_id: Option<Uuid>,
    /// Its lane has the same id.
    pub request_id: Uuid,
    pub fence: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// Nil for somebody who sends no request: a database session, a Redis, a person.
    pub request_id: Uuid,
    #[schema(value_type = String)]
    pub label: Text,
    pub replica: String,
    /// Index of the arm that sent it, from 0; `None` if a lesson sent it individually.
    pub arm: Option<usize>,
    /// Id of the scene of a lesson that it belongs to; empty for an arm's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scene: String,
    /// Strategy of a lesson's request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Idempotency key of a lesson's request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Uuid>,
    /// Times in µs since the run began.
    pub sent_us: u64,
    pub answered_us: Option<u64>,
    pub status: Option<u16>,
    /// Name of the problem type of the response, for example `sold-out`.
    pub problem: Option<String>,
    #[schema(value_type = Vec<DescribedEvent>)]
    pub events: Vec<TimelineEvent<()>>,
}

// Describes a [`TimelineEvent`] of a lane in the API.
#[derive(ToSchema)]
#[schema(as = LaneEvent)]
#[expect(dead_code, reason = "it is only described")]
pub(super) struct DescribedEvent {
    /// Time in µs since the run began.
    t_us: u64,
    /// Name of a probe point (`wait`, `held`, `read`, `write`, `commit`, `committed`, `release`,
    /// …), of what the request found (`lost`, `foreign`, `refused`, …), or of an external event:
    /// `paused`, `expired`, `killed`, `disconnected`, ….
    event: String,
    /// Lock key that the event concerns, if any.
    #[schema(required = false)]
    key: String,
    value: Option<i64>,
    fence: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LabRun {
    pub id: Uuid,
    pub state: LabRunState,
    #[serde(rename = "wanted")]
    pub request: RunRequest,
    pub progress: RunProgress,
    /// Replica that executes it, if it is a race.
    pub replica: Option<String>,
    /// Place in the queue, from 1; absent once the run is claimed.
    pub position: Option<i64>,
    /// True if the run was imported from a file: its contents are not verified.
    #[serde(default)]
    pub from_file: bool,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: time::OffsetDateTime,
    /// Empty until the run is over.
    #[serde(flatten)]
    pub outcome: RunResult,
}

impl LabRun {
    /// Returns what a scene has shown, unless it is the one of the verdict.
    pub fn scene_sentence(&self, id: &str) -> Option<&Text> {
        let mut scenes = self.outcome.scenes.iter();
        scenes.find(|scene| scene.id == id).map(|scene| &scene.sentence)
    }

    /// Replaces the messages by their texts in a language, as the API returns them.
    #[must_use]
    pub fn in_language(mut self, language: Language) -> Self {
        let RunResult { verdict, scenes, evidence, steps, lanes, .. } = &mut self.outcome;
        let facts = evidence.iter_mut().flat_map(|fact| [&mut fact.name, &mut fact.value]);
        let labels = lanes.iter_mut().map(|lane| &mut lane.label);
        let sentences = scenes.iter_mut().map(|scene| &mut scene.sentence);
        let texts = facts.chain(labels).chain(sentences).chain(steps).chain(verdict);

        for text in texts.chain(&mut self.progress.steps) {
            *text = text.text(language).into();
        }
        self
    }
}
