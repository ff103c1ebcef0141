//! A judgement: what `holdfast judge --json` prints, and what its pages draw.

use std::fmt;

use holdfast_base::messages::{Language, Message};
use holdfast_story::{Timeline, TimelineEvent};
use serde::{Deserialize, Serialize};
use strum::{EnumIter, EnumString, IntoStaticStr};

/// The findings of a judgement about one adapter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judgement {
    pub adapter: Adapter,
    /// One entry per fault, in the order in which they ran; `none` is the first.
    pub faults: Vec<FaultReport>,
    /// No lost update under any fault, writes without the fence; false if the lock kept a fault
    /// from running.
    pub safe: bool,
    pub ttl_ms: u64,
    pub seed: u64,
    /// When the judgement began: RFC 3339, UTC.
    pub started_at: String,
    /// Options of the command, in a file of `docs/judged`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
}

pub(super) fn is_safe(faults: &[FaultReport]) -> bool {
    let is_unsafe = |it: &FaultReport| it.prevented || it.has_stopped() || it.lost_updates > 0;
    !faults.iter().any(is_unsafe)
}

/// An adapter's answer to `init`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adapter {
    pub name: String,
    pub fencing: bool,
    /// It renews its lease while a client holds the lock.
    #[serde(default)]
    pub renews: bool,
    /// It can be asked to cancel a request.
    #[serde(default)]
    pub cancels: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FaultReport {
    pub name: String,
    /// True if it ran; if not, all figures are zero.
    pub ran: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The same with its values, to be said in another language; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not_message: Option<Message>,
    /// It did not run because of the lock, which no client got: nothing is known of the lock under
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prevented: bool,
    /// It struck nothing: the lock had no connection to a server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untouched: bool,
    /// No connection went through a proxy of `--backend-proxy`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bypassed: bool,
    /// Absent if it ran once.
    #[serde(flatten)]
    pub repeats: Option<Repeats>,
    /// Turns: grants, after each of which the client read, worked and wrote, unless it was killed.
    /// Files of older versions call it `acquired`.
    #[serde(default, alias = "acquired")]
    pub turns: u64,
    /// Units taken that the stock does not show: entries of the ledger minus the change of stock.
    pub lost_updates: u64,
    /// Pairs of clients that held one key at once, as seen by the judge.
    pub overlaps: u64,
    /// Turns that would have lost an update, if the adapter had not said in time that the lock was
    /// lost.
    #[serde(default)]
    pub saved_updates: u64,
    /// Releases that were answered `ok` although another client held the lock by then.
    pub release_ok_when_lost: u64,
    /// Releases that were answered `lost` within half a lease of the grant; only without a fault.
    #[serde(default)]
    pub early_losses: u64,
    /// Grants within half a lease of an earlier one, whose client still held the lock; only under
    /// `long-work`.
    #[serde(default)]
    pub early_grants: u64,
    /// Grants whose fence was not above all earlier ones of the key.
    pub fence_regressions: u64,
    /// Answers *busy* or *timeout* while the backend was away and no client held the key.
    pub misreported_busy: u64,
    #[serde(default)]
    pub errors: u64,
    /// Requests for the lock that ended as they were cancelled.
    #[serde(default)]
    pub cancelled: u64,
    /// The same work with reads that register the fence and writes that demand it; absent without
    /// fences.
    pub with_fence: Option<WithFence>,
    /// Longest time in which no client got a key that none worked on, in milliseconds.
    pub blocked_ms_max: u64,
    pub waiters_starved: u64,
    /// Keys left in Redis 2 × TTL after the work.
    pub leftover_keys: u64,
    pub held_share: f64,
    pub wait_p50_ms: f64,
    pub wait_p99_ms: f64,
    /// `wait_p99_ms` over the wait of a fair queue: clients of the key × time per turn.
    #[serde(default)]
    pub wait_ratio: f64,
    /// Jain's index of the grants over the clients: 1 is even, 1 / clients is one client alone.
    pub jain: f64,
    /// Redis commands per grant, without those of idle adapters.
    #[serde(default)]
    pub redis_commands: f64,
    /// Those of idle adapters per second, once the clients have ended; only without a fault.
    #[serde(default)]
    pub idle_commands: f64,
    /// One sentence for each violation, with its evidence; the first few of each kind.
    #[serde(default)]
    pub violations: Vec<Violation>,
    /// A client with other servers was refused the lock; only without a fault, and of the course.
    #[serde(skip)]
    pub excludes_elsewhere: bool,
    /// The last lines that an adapter wrote to stderr, not those of one that was killed.
    #[serde(skip)]
    pub stderr: Vec<String>,
    /// Of the lost updates, those before any turn had lasted for half a lease: no lease had ended
    /// by then, as it does where the machine stands still.
    #[serde(skip)]
    pub lost_in_time: u64,
    /// Time that the clients spent waiting for the lock, in seconds: the sum over all.
    #[serde(skip)]
    pub waited_s: f64,
    /// Answers *error*, to releases too, with the reason of the last one.
    #[serde(skip)]
    pub failed_calls: Option<(u64, String)>,
}

impl FaultReport {
    /// Returns why it did not run; `None` if there is no message that this version knows.
    pub fn why_not_in(&self, language: Language) -> Option<String> {
        self.why_not_message.as_ref()?.format(language)
    }
}

/// The runs of a fault, each with another seed (`--repeat`). The other figures of its report are
/// those of one run: of the first one that lost an update with the fence, else of the first one
/// that lost an update, else of the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Runs, without those in which the fault could not be placed.
    pub runs: u32,
    /// Runs that lost an update.
    pub lost_in: u32,
    /// Runs that lost an update of the row whose writes demand the fence; 0 without fences.
    pub lost_in_with_fence: u32,
    /// Seed of the run whose figures are reported.
    pub run_seed: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WithFence {
    /// As [`FaultReport::lost_updates`]. Nothing but the fence protects these writes: two holders
    /// with one fence lose updates.
    pub lost_updates: u64,
    /// Turns whose read or write was refused, as a higher fence was registered.
    #[serde(default)]
    pub refused: u64,
}

/// Message of a violation *blocked* that lasted until the work ended.
pub(crate) const BLOCKED_TO_END: &str = "judge-found-blocked-to-end";

/// A kind of violation; its text is its name in files and messages.
#[derive(
    Debug, Clone, PartialEq, Eq, EnumIter, EnumString, IntoStaticStr, Serialize, Deserialize,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(from = "String", into = "String")]
pub enum ViolationKind {
    LostUpdate,
    LostWithFence,
    Overlap,
    ReleaseOkWhenLost,
    EarlyLoss,
    EarlyGrant,
    FenceRegression,
    MisreportedBusy,
    Blocked,
    Starved,
    LeftoverKey,
    /// One that this version does not know, by its name.
    #[strum(default)]
    Other(String),
}

impl ViolationKind {
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            kind => kind.into(),
        }
    }

    /// Returns the kind in words; an unknown one, which may come from a file, as it stands.
    pub fn title(&self, language: Language) -> String {
        match self {
            Self::Other(name) => name.clone(),
            kind => language.text(&format!("judge-kind-{}", kind.name())),
        }
    }

    pub fn is_loss(&self) -> bool {
        matches!(self, Self::LostUpdate | Self::LostWithFence)
    }
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<String> for ViolationKind {
    fn from(name: String) -> Self {
        name.parse().unwrap_or(Self::Other(name))
    }
}

impl From<ViolationKind> for String {
    fn from(kind: ViolationKind) -> Self {
        kind.name().to_owned()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Violation {
    pub kind: ViolationKind,
    /// The course of events, with the clients and values: "w0 c3 and w1 c5 both read 41; …".
    pub text: String,
    /// The same with its values, to be said in another language; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// The events around it, by time, for a drawing with a lane per client.
    #[serde(default, with = "super::saved_events")]
    pub events: Vec<TimelineEvent<Actor>>,
    /// Only what happened in the turns that the text speaks of, for the course.
    #[serde(skip)]
    pub story: Vec<TimelineEvent<Actor>>,
}

impl Violation {
    /// Returns its events in order of time, with a lane per client and below them one per server,
    /// and with the writes marked that lost an update.
    pub fn timeline(&self) -> Timeline {
        let events = self.events.iter().cloned();
        let in_lanes = events.map(|event| {
            let lane = event.lane.lane();
            event.on(lane)
        });
        let mut timeline = Timeline::of(in_lanes.collect(), Actor::to_string);
        timeline.mark_stale_writes();
        timeline
    }

    /// Returns the text in a language; `None` if there is no message that this version knows.
    pub fn text_in(&self, language: Language) -> Option<String> {
        self.message.as_ref()?.format(language)
    }
}

/// Whom an event happened to: a client, or a server while that client held the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor {
    pub server: Option<StruckServer>,
    pub id: ClientId,
}

impl Actor {
    /// Returns itself as a lane of a drawing: a server has one lane, for all holders of the lock.
    fn lane(self) -> Self {
        if self.server.is_some() { Self { id: ClientId::default(), ..self } } else { self }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            Some(server) => f.write_str(server.into()),
            None => self.id.fmt(f),
        }
    }
}

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    EnumString,
    IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[serde(from = "String", into = "&'static str")]
pub enum StruckServer {
    Redis,
    #[strum(serialize = "Redis replica")]
    RedisReplica,
}

impl From<String> for StruckServer {
    /// A file may name any server.
    fn from(name: String) -> Self {
        name.parse().unwrap_or(Self::Redis)
    }
}

/// A client of a worker: `w0 c3`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ClientId {
    pub worker: u32,
    pub client: u32,
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{} c{}", self.worker, self.client)
    }
}
