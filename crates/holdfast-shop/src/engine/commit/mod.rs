//! Group commit: writes of several batches share a statement and its commit.
//!
//! A statement and its commit cost Postgres far more than one more row. So of each kind, one
//! statement is in flight at a time; writes that become ready during it form the next one. No timer
//! delays a write, and a slow statement delays the next one by at most [`MAX_STATEMENT_DELAY`].
//!
//! Guarantees: a group is written as a whole or not at all. If a row of it changed or stays locked,
//! each write is sent by itself, so a write fails for its own rows only. If the outcome is unknown,
//! each leader resolves its own write; once a version is raised, the group matches no row.
//!
//! The batches of a group change different rows, because each key has one leader in a process, and
//! a command that can be batched changes the row of its key alone.
//!
//! Source: group commit of log records (`DeWitt` et al., SIGMOD 1984).
//! Tests: `tests/it/group_commit.rs`.

pub mod resolve;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::db::{ErrorClass, Pool};
use crate::engine::batch::session::{DatabaseSession, refuse_while_commits_wait};
use crate::engine::command_queue::limit::MAX_BATCH_SIZE;
use crate::failure::{Error, Failure};
use crate::store::edit::edit;
use crate::store::place::place;
use crate::store::transition::transition;
use crate::store::{BatchWrite, WriteResult};
use crate::strategy::data_path::DataPath;
use crate::tasks::Tasks;
use holdfast_base::metrics::{COUNTS, define_metrics};

const MAX_STATEMENT_DELAY: Duration = Duration::from_millis(20);
/// Time after which the outcome of a write is unknown. Longer than the `lock_timeout` of a session,
/// so that a timeout of a row lock is a known outcome.
const WRITE_TIMEOUT: Duration = Duration::from_millis(3_300);

define_metrics! {
    GROUP_COMMIT_REQUESTS: "holdfast_group_commit_requests", Histogram [] COUNTS,
        "batched: requests for several items per shared write";
}

#[derive(Debug, Clone)]
pub struct GroupCommit {
    pool: Pool,
    tasks: Tasks,
    orders: Arc<Mutex<WriteGroup>>,
    transitions: Arc<Mutex<WriteGroup>>,
}

#[derive(Debug, Default)]
struct WriteGroup {
    busy: bool,
    queue: VecDeque<QueuedWrite>,
    /// Connection for the next statement: that of the first write in the queue.
    session: Option<DatabaseSession>,
}

#[derive(Debug)]
struct QueuedWrite {
    write: Arc<BatchWrite>,
    reply: oneshot::Sender<GroupResult>,
}

/// The outcome of a group: [`WriteResult::RowChanged`] if nothing was written, possibly because of
/// a row of another write; an error if Postgres is unavailable.
type GroupResult = Result<WriteResult, Error>;

impl GroupCommit {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
        Self {
            pool: pool.clone(),
            tasks: tasks.clone(),
            orders: Arc::default(),
            transitions: Arc::default(),
        }
    }

    /// Writes on `session`, or in a group on the session of one of its writes. Fails with
    /// [`Error::Unavailable`] if the outcome is unknown; after other errors nothing was written.
    pub async fn write(
        &self,
        session: &mut DatabaseSession,
        write: &Arc<BatchWrite>,
    ) -> Result<WriteResult, Failure> {
        let group = if write.places_orders() { &self.orders } else { &self.transitions };
        let Some(outcome) = join(group, session, write) else {
            let permit = StatementPermit { group: group.clone(), all: self.clone() };
            return permit.release_after(send(&self.pool, session, None, &[write])).await;
        };

        match outcome.await {
            Ok(Ok(WriteResult::Done)) => Ok(WriteResult::Done),
            Ok(Ok(WriteResult::RowChanged)) => {
                // Alone: the row that changed may be another write's.
                let connection = self.pool.acquire().await.map_err(|error| {
                    // Nothing was sent, so the outcome is not unknown.
                    match Error::from(error) {
                        Error::Unavailable { cause, .. } => {
                            Error::Postgres(ErrorClass::CannotWrite, cause)
                        }
                        error => error,
                    }
                })?;
                *session = DatabaseSession::autocommit(connection);
                send(&self.pool, session, None, &[write]).await
            }
            Ok(Err(error)) => Err(error.into()),
            // Its sender is gone without a word, perhaps after it sent the statement.
            Err(_) => Err(Error::postgres_timeout().into()),
        }
    }
}

/// Writes the batches in one statement, all or nothing. Either all of them place orders, or none
/// does; an edit of an item is alone, and so is a write of a strategy with a data path.
pub async fn write_batches(
    db: &mut PgConnection,
    data_path: Option<&dyn DataPath>,
    batches: &[&BatchWrite],
) -> Result<WriteResult, Failure> {
    if let Some(path) = data_path {
        let [batch] = batches else {
            return Err(Error::Bug("a data path writes one batch at a time".to_owned()).into());
        };
        return path.write(db, batch).await;
    }
    if batches.iter().any(|batch| batch.places_orders()) {
        return Ok(place(db, batches).await?);
    }
    if let [batch] = batches
        && let Some((write, item)) = batch.edit()
    {
        return Ok(edit(db, batch, write, item).await?);
    }
    transition(db, batches).await
}

/// Sends a write in autocommit mode. After [`Error::Unavailable`] the session can't be reused.
/// While commits wait, nothing is sent.
pub async fn send(
    pool: &Pool,
    session: &mut DatabaseSession,
    data_path: Option<&dyn DataPath>,
    batches: &[&BatchWrite],
) -> Result<WriteResult, Failure> {
    refuse_while_commits_wait(pool)?;
    let writing = write_batches(session.connection(), data_path, batches);
    let written = timeout(WRITE_TIMEOUT, writing);
    tokio::select! {
        written = written => written.unwrap_or_else(|_| {
            pool.record_stuck_write();
            Err(Error::postgres_timeout().into())
        }),
        // Sooner than the timeout, if the others notice that Postgres does not respond.
        () = pool.silence() => Err(Error::postgres_timeout().into()),
    }
}

/// Adds the write to the next statement. Returns `None` if no statement is in flight: the caller
/// may send the write.
fn join(
    group: &Mutex<WriteGroup>,
    session: &mut DatabaseSession,
    write: &Arc<BatchWrite>,
) -> Option<oneshot::Receiver<GroupResult>> {
    let mut group = group.lock();
    if !std::mem::replace(&mut group.busy, true) {
        return None;
    }

    // The group needs one connection; the others return to the pool.
    match &group.session {
        Some(_) => session.return_to_pool(),
        None => group.session = Some(session.take()),
    }

    let (reply, outcome) = oneshot::channel();
    group.queue.push_back(QueuedWrite { write: write.clone(), reply });
    Some(outcome)
}

/// The permit to send one statement. On drop, sends the writes that are ready.
struct StatementPermit {
    group: Arc<Mutex<WriteGroup>>,
    all: GroupCommit,
}

impl StatementPermit {
    /// Executes a statement, and drops the permit at its end or after [`MAX_STATEMENT_DELAY`].
    async fn release_after<T>(self, statement: impl Future<Output = T>) -> T {
        let mut statement = pin!(statement);
        match timeout(MAX_STATEMENT_DELAY, &mut statement).await {
            Ok(done) => done,
            Err(_) => {
                // It may wait for a row that is locked for seconds; the others need not.
                drop(self);
                statement.await
            }
        }
    }
}

impl Drop for StatementPermit {
    fn drop(&mut self) {
        let mut group = self.group.lock();
        let writes = take_group(&mut group.queue);
        if writes.is_empty() {
            group.busy = false;
            if let Some(session) = &mut group.session.take() {
                session.return_to_pool();
            }
            return;
        }

        let session = group.session.take();
        drop(group);
        let next = Self { group: self.group.clone(), all: self.all.clone() };
        self.all.tasks.spawn(send_group(next, session, writes));
    }
}

/// Takes the first writes, of [`MAX_BATCH_SIZE`] commands at most, which is the limit of one write.
fn take_group(queue: &mut VecDeque<QueuedWrite>) -> Vec<QueuedWrite> {
    let mut commands = 0;
    let mut count = 0;
    for queued in queue.iter() {
        commands += queued.write.commands.len();
        if commands > MAX_BATCH_SIZE {
            break;
        }
        count += 1;
    }
    queue.drain(..count).collect()
}

async fn send_group(
    permit: StatementPermit,
    session: Option<DatabaseSession>,
    writes: Vec<QueuedWrite>,
) {
    let pool = permit.all.pool.clone();
    let batches: Vec<&BatchWrite> = writes.iter().map(|queued| &*queued.write).collect();
    let writing = async {
        let mut session = match session {
            Some(session) => session,
            None => match pool.acquire().await {
                Ok(connection) => DatabaseSession::autocommit(connection),
                // Nothing was sent: each writer tries by itself, and reports what it meets.
                Err(_) => return Ok(WriteResult::RowChanged),
            },
        };

        let written = send(&pool, &mut session, None, &batches).await;
        match &written {
            Err(Failure::Error(error)) => session.end_failed(error).await,
            _ => session.end().await,
        }
        written
    };

    let outcome = match permit.release_after(writing).await {
        Ok(result) => Ok(result),
        Err(Failure::Error(error)) if error.is_outage() => Err(error),
        // Rolled back as a whole, perhaps because of one write: each is sent by itself.
        Err(_) => Ok(WriteResult::RowChanged),
    };

    if batches.len() > 1 {
        let commands: usize = batches.iter().map(|batch| batch.commands.len()).sum();
        tracing::debug!(writes = batches.len(), commands, ?outcome, "a shared write");
        metrics::histogram!(GROUP_COMMIT_REQUESTS).record(commands as f64);
    }
    for queued in writes {
        let _ = queued.reply.send(outcome.clone());
    }
}
