//! Group commit: writes of several batches share a statement and its commit.
//!
//! A statement and its commit cost Postgres far more than one more row. So of each kind, one
//! statement is in flight at a time; writes that become ready during it form the next one. No timer
//! delays a write, and a slow statement delays the next one by at most [`PATIENCE`].
//!
//! Guarantees: a group is written as a whole or not at all. If a row of it moved or stays locked,
//! each write is sent by itself, so a write fails for its own rows only. If the outcome is unknown,
//! each leader resolves its own write; once a version is raised, the group matches no row.
//!
//! The parts of a group change different rows, because each key has one leader in a process.
//! [`write_parts`] checks this, because two parts decided on one version would both match it.
//!
//! Source: group commit of log records (`DeWitt` et al., SIGMOD 1984).
//! Tests: `tests/it/group_commit.rs`.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::batch::ReadyWrite;
use super::queue_limit::MAX_BATCH_SIZE;
use super::session::Session;
use crate::shop::Shop;
use crate::shop::failure::{Error, Failure};
use crate::shop::store::guard::share_a_row;
use crate::shop::store::place::place;
use crate::shop::store::transition::transition;
use crate::shop::store::{Part, Written};

/// Upper bound of the time for which a statement delays the next one.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time after which the outcome of a write is unknown. Longer than the `lock_timeout` of a session,
/// so that a timeout of a row lock is a known outcome.
const WRITE_TIMEOUT: Duration = Duration::from_millis(3_300);

/// The groups of one process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupCommit {
    orders: Arc<Mutex<Group>>,
    transitions: Arc<Mutex<Group>>,
}

/// The writes of one kind: orders or transitions.
#[derive(Debug, Default)]
struct Group {
    /// True while a [`Permit`] exists.
    busy: bool,
    /// Writes for the next statement; empty unless `busy`.
    ready: VecDeque<Waiting>,
    /// Connection for the next statement: the first write has just used it for its read.
    session: Option<Session>,
}

#[derive(Debug)]
struct Waiting {
    write: Arc<ReadyWrite>,
    reply: oneshot::Sender<Outcome>,
}

/// The outcome of a write in a group.
#[derive(Debug, Clone)]
enum Outcome {
    Done,
    /// Nothing was written, possibly because of a row of another write.
    NotDone,
    Unknown(Error),
}

impl GroupCommit {
    /// Writes on `session`, or in a group on the session of one of its writes.
    ///
    /// # Errors
    /// As [`write_parts`]; [`Error::Unavailable`] if the outcome is unknown.
    pub async fn write(
        &self,
        shop: &Shop,
        session: &mut Session,
        write: &Arc<ReadyWrite>,
    ) -> Result<Written, Failure> {
        let part = write.part();
        let group = if part.places_orders() { &self.orders } else { &self.transitions };
        let Some(outcome) = join(group, session, write) else {
            let permit = Permit { group: group.clone(), shop: shop.clone() };
            return permit.during(send(session, &[part])).await;
        };
        match outcome.await {
            Ok(Outcome::Done) => Ok(Written::Done),
            Ok(Outcome::NotDone) => {
                let connection = shop.connection().await.map_err(|error| {
                    // Nothing was sent, so the outcome is not unknown.
                    Error::Overloaded(format!("no connection for the write: {error}"))
                })?;
                *session = Session::autocommit(connection);
                send(session, &[part]).await
            }
            Ok(Outcome::Unknown(error)) => Err(error.into()),
            Err(_) => Err(Error::silent_postgres().into()),
        }
    }
}

/// Writes the parts in one statement, all or nothing. Either all of them place orders, or none
/// does. Parts that share a row are not written, because they may have been decided on one version.
///
/// # Errors
/// As [`place`] and [`transition`].
pub(super) async fn write_parts(
    db: &mut PgConnection,
    parts: &[Part<'_>],
) -> Result<Written, Failure> {
    if share_a_row(parts.iter().map(|part| part.rows)) {
        return Ok(Written::Moved);
    }
    if parts.iter().any(Part::places_orders) {
        Ok(place(db, parts).await?)
    } else {
        transition(db, parts).await
    }
}

/// Sends a write in autocommit mode. After [`Error::Unavailable`] the session can't be reused.
pub(super) async fn send(session: &mut Session, parts: &[Part<'_>]) -> Result<Written, Failure> {
    let sent = timeout(WRITE_TIMEOUT, write_parts(session, parts)).await;
    sent.unwrap_or_else(|_| Err(Error::silent_postgres().into()))
}

/// Adds the write to the next statement. Returns `None` if no statement is in flight: the caller
/// may send the write.
fn join(
    group: &Mutex<Group>,
    session: &mut Session,
    write: &Arc<ReadyWrite>,
) -> Option<oneshot::Receiver<Outcome>> {
    let mut group = group.lock();
    if !std::mem::replace(&mut group.busy, true) {
        return None;
    }
    // The group needs one connection; the others return to the pool.
    match &group.session {
        Some(_) => session.give_back(),
        None => group.session = Some(session.hand_over()),
    }
    let (reply, outcome) = oneshot::channel();
    group.ready.push_back(Waiting { write: write.clone(), reply });
    Some(outcome)
}

/// The permit to send one statement. On drop, sends the writes that are ready.
struct Permit {
    group: Arc<Mutex<Group>>,
    shop: Shop,
}

impl Permit {
    /// Executes a statement, and drops the permit at its end or after [`PATIENCE`].
    async fn during<T>(self, statement: impl Future<Output = T>) -> T {
        let mut statement = pin!(statement);
        match timeout(PATIENCE, &mut statement).await {
            Ok(done) => done,
            Err(_) => {
                drop(self);
                statement.await
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut group = self.group.lock();
        let ready = take(&mut group.ready);
        if ready.is_empty() {
            group.busy = false;
            if let Some(session) = &mut group.session.take() {
                session.give_back();
            }
            return;
        }
        let session = group.session.take();
        drop(group);
        let next = Self { group: self.group.clone(), shop: self.shop.clone() };
        self.shop.running.spawn_on(send_together(next, session, ready), &self.shop.runtime);
    }
}

/// Takes the first writes, of [`MAX_BATCH_SIZE`] commands at most, which is the limit of one write.
fn take(ready: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let mut commands = 0;
    let fits = |waiting: &&Waiting| {
        commands += waiting.write.len();
        commands <= MAX_BATCH_SIZE
    };
    let count = ready.iter().take_while(fits).count();
    ready.drain(..count).collect()
}

async fn send_together(permit: Permit, session: Option<Session>, ready: Vec<Waiting>) {
    let shop = permit.shop.clone();
    let parts: Vec<Part<'_>> = ready.iter().map(|waiting| waiting.write.part()).collect();
    let writing = async {
        let mut session = match session {
            Some(session) => session,
            None => match shop.connection().await {
                Ok(connection) => Session::autocommit(connection),
                Err(_) => return Ok(Written::Moved),
            },
        };
        let written = send(&mut session, &parts).await;
        if !matches!(written, Err(Failure::Error(Error::Unavailable { .. }))) {
            session.abandon().await;
        }
        written
    };
    let outcome = match permit.during(writing).await {
        Ok(Written::Done) => Outcome::Done,
        Err(Failure::Error(error @ Error::Unavailable { .. })) => Outcome::Unknown(error),
        Ok(Written::Moved) | Err(_) => Outcome::NotDone,
    };
    if parts.len() > 1 {
        let commands: usize = ready.iter().map(|waiting| waiting.write.len()).sum();
        tracing::debug!(writes = parts.len(), commands, ?outcome, "a shared write");
        metrics::histogram!("holdfast_group_requests").record(commands as f64);
    }
    for waiting in ready {
        let _ = waiting.reply.send(outcome.clone());
    }
}
