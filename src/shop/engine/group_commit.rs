//! Group commit: writes that become ready while others are under way share a statement.
//!
//! The leaders of many keys each write one row. A statement and its commit cost Postgres far more
//! than one more row, so [`MAX_SENT`] statements are under way at a time, and what becomes ready
//! meanwhile is the next one. No timer delays a write. Parts are of different rows, because each
//! leader holds its key's lock.
//!
//! Guarantees: a write is sent by itself when nothing else is under way; a group is written as a
//! whole or not at all; if it was not, because of one row, each of its writes is sent by itself, so
//! nobody is failed for another one's row; if its outcome is unknown, each leader resolves its own
//! write, and whichever raises a version first, the group as a whole comes too late. A statement
//! that waits for a row delays the next one by [`PATIENCE`] at most.
//!
//! From group commit of log records (`DeWitt` et al., SIGMOD 1984). Tests: `tests/it/grouped.rs`.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::batch::ReadyWrite;
use super::queue_limit::MAX_BATCH_SIZE;
use super::session::Session;
use crate::shop::Shop;
use crate::shop::failure::{Error, Failure};
use crate::shop::store::{self, Part, Written};

/// How many statements of one kind are under way at a time.
const MAX_SENT: usize = 2;
/// How long a statement counts as one of them.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a write may take before its outcome counts as unknown. More than the sessions'
/// `lock_timeout`: a write that waits for a row in vain is known not to be done.
const WRITE_TIMEOUT: Duration = Duration::from_millis(3_300);

/// The groups of one process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupCommit {
    orders: Arc<Mutex<Group>>,
    transitions: Arc<Mutex<Group>>,
}

/// The writes of one kind.
#[derive(Debug, Default)]
struct Group {
    sent: usize,
    /// Not empty only while as many as may be are sent.
    ready: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    write: Arc<ReadyWrite>,
    reply: oneshot::Sender<Outcome>,
}

/// What became of a write in a group.
#[derive(Debug, Clone)]
enum Outcome {
    Done,
    /// Nothing was written, maybe because of another one's row.
    NotDone,
    Unknown(Error),
}

impl GroupCommit {
    /// Writes on the session, or together with others on one of its own.
    ///
    /// # Errors
    /// As [`store::write`]; [`Error::Unavailable`] also when the outcome is unknown.
    pub async fn write(
        &self,
        shop: &Shop,
        session: &mut Session,
        write: ReadyWrite,
    ) -> Result<Written, Failure> {
        let group = if write.part().places_orders() { &self.orders } else { &self.transitions };
        let write = Arc::new(write);
        let outcome = match enter(group, shop, &write) {
            Entered::Sends(permit) => {
                return permit.during(send(session, &[write.part()])).await;
            }
            Entered::Waits(outcome) => outcome,
        };
        // Others need the connection.
        session.give_back();
        match outcome.await {
            Ok(Outcome::Done) => Ok(Written::Done),
            Ok(Outcome::NotDone) => {
                *session = Session::autocommit(shop.connection().await?);
                send(session, &[write.part()]).await
            }
            Ok(Outcome::Unknown(error)) => Err(error.into()),
            Err(_) => Err(Error::silent_postgres().into()),
        }
    }
}

/// Sends a write that commits itself. After an error the session can't be used again.
pub(super) async fn send(session: &mut Session, parts: &[Part<'_>]) -> Result<Written, Failure> {
    let sent = timeout(WRITE_TIMEOUT, store::write(session, parts)).await;
    sent.unwrap_or_else(|_| Err(Error::silent_postgres().into()))
}

enum Entered {
    Sends(Permit),
    Waits(oneshot::Receiver<Outcome>),
}

fn enter(group: &Arc<Mutex<Group>>, shop: &Shop, write: &Arc<ReadyWrite>) -> Entered {
    let mut state = group.lock();
    if state.sent < MAX_SENT {
        state.sent += 1;
        return Entered::Sends(Permit { group: group.clone(), shop: shop.clone() });
    }
    let (reply, outcome) = oneshot::channel();
    state.ready.push_back(Waiting { write: write.clone(), reply });
    Entered::Waits(outcome)
}

/// Permits one statement. Dropped, it sends those that are ready by now.
struct Permit {
    group: Arc<Mutex<Group>>,
    shop: Shop,
}

impl Permit {
    /// Counts a statement as under way until it is done, or for [`PATIENCE`].
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
            group.sent -= 1;
            return;
        }
        drop(group);
        let next = Self { group: self.group.clone(), shop: self.shop.clone() };
        self.shop.running.spawn_on(send_together(next, ready), &self.shop.runtime);
    }
}

/// Takes the first writes, of [`MAX_BATCH_SIZE`] commands at most, or one that is larger.
fn take(ready: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let (mut taken, mut commands) = (Vec::new(), 0);
    while let Some(first) = ready.front() {
        commands += first.write.len();
        if commands > MAX_BATCH_SIZE && !taken.is_empty() {
            break;
        }
        taken.extend(ready.pop_front().filter(|waiting| !waiting.reply.is_closed()));
    }
    taken
}

async fn send_together(permit: Permit, ready: Vec<Waiting>) {
    let shop = permit.shop.clone();
    let parts: Vec<Part<'_>> = ready.iter().map(|waiting| waiting.write.part()).collect();
    let writing = async {
        let mut session = Session::autocommit(shop.connection().await?);
        let written = send(&mut session, &parts).await;
        if written.is_ok() {
            session.abandon().await;
        }
        written
    };
    let outcome = match permit.during(writing).await {
        Ok(Written::Done) => Outcome::Done,
        Err(Failure::Error(error @ Error::Unavailable { .. })) => Outcome::Unknown(error),
        Ok(Written::Moved) | Err(_) => Outcome::NotDone,
    };
    let commands: usize = ready.iter().map(|waiting| waiting.write.len()).sum();
    metrics::histogram!("holdfast_group_requests").record(commands as f64);
    for waiting in ready {
        let _ = waiting.reply.send(outcome.clone());
    }
}
