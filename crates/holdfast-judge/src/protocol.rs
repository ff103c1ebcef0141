//! Messages between judge, worker and adapter: lines of JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::JudgeArgs;
use super::failure::JudgeFailure;
use super::report::{Adapter, ClientId};

#[derive(Debug, Serialize)]
pub(super) struct AdapterRequest<'a> {
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) op: AdapterOp<'a>,
}

/// A request; its text is its name.
#[derive(Debug, Serialize, IntoStaticStr)]
#[serde(tag = "op", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum AdapterOp<'a> {
    Init {
        worker: u32,
        redis_url: &'a str,
        database_url: &'a str,
        ttl_ms: u64,
    },
    Acquire {
        key: &'a str,
        wait_ms: u64,
    },
    Release {
        key: &'a str,
        lease: &'a str,
    },
    /// Cancels the request with this id; its own answer says only that this was received.
    Cancel {
        request: u64,
    },
}

/// The adapter's answer to any request.
#[derive(Debug, Deserialize)]
pub(super) struct AdapterAnswer {
    pub(super) id: u64,
    pub(super) ok: bool,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) lease: Option<String>,
    pub(super) fence: Option<i64>,
    /// Of an answer to `init`.
    pub(super) name: Option<String>,
    pub(super) fencing: Option<bool>,
    pub(super) renews: Option<bool>,
    pub(super) cancels: Option<bool>,
}

/// The adapter has found that it does not hold a lease any more.
#[derive(Debug, Deserialize)]
pub(super) struct AdapterLoss {
    /// As the answer to `acquire` named it.
    pub(super) lost: String,
}

/// A call of a server that the adapter asks for.
#[derive(Debug, Deserialize)]
pub(super) struct AdapterCall {
    /// The adapter's number of it.
    pub(super) call: u64,
    /// The request in which it is made, and with which it is cancelled.
    pub(super) request: Option<u64>,
    #[serde(flatten)]
    pub(super) op: ServerOp,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum ServerOp {
    Redis { words: Vec<String> },
    Postgres { sql: String },
}

/// The first line to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WorkerSetup {
    pub(super) worker: u32,
    /// With the wait and the environment of this pass.
    pub(super) args: JudgeArgs,
    pub(super) redis_url: String,
    pub(super) database_url: String,
    pub(super) ledger_url: String,
    pub(super) key: String,
    /// Clients cancel some of their requests.
    pub(super) cancels: bool,
    /// The adapter must answer a request within this time, on top of the wait.
    pub(super) answer_timeout: Duration,
    pub(super) seed: u64,
    /// Rows of the ledger that belong to this pass.
    pub(super) pass: i64,
}

/// A later line to a worker.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum WorkerOrder {
    Begin,
    /// Hold the next client that acquires the lock, between its read and its write.
    Hold,
    /// Let the held client write; its commit takes this time.
    Go {
        commit_ms: u64,
    },
    /// Finish what was begun, and report the end.
    End,
}

/// A line from a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum WorkerReport {
    Ready(Adapter),
    /// A client is held, as ordered.
    Holding(Turn),
    Turn(Turn),
    Ended {
        last_error: Option<String>,
        /// The end of the adapter's stderr.
        last_words: Vec<String>,
    },
    Failed(JudgeFailure),
}

/// One turn of a client: from its request for the lock to the release. Times are microseconds of
/// the machine's monotonic clock; 0 means that it did not come to this.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) id: ClientId,
    pub(super) asked_us: u64,
    pub(super) answered_us: u64,
    pub(super) outcome: TurnOutcome,
    pub(super) fence: Option<i64>,
    pub(super) read_us: u64,
    pub(super) value: i64,
    pub(super) wrote_us: u64,
    /// The write that demands the fence was refused.
    pub(super) refused: bool,
    /// The adapter said that the lock was lost, and the client did not write.
    pub(super) stopped: bool,
    /// So it lost no update: another client had written since its read.
    pub(super) saved: bool,
    pub(super) release_us: u64,
    pub(super) released_us: u64,
    pub(super) release: ReleaseAnswer,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TurnOutcome {
    Granted,
    #[default]
    Busy,
    Timeout,
    Error,
    Cancelled,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReleaseAnswer {
    #[default]
    None,
    Ok,
    Lost,
    Error,
    Cancelled,
}
