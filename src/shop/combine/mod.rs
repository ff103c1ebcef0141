//! Many requests for one value, carried out together: `batched`.
//!
//! Whoever wants to change a value joins the line of its key. One task per key and process (the
//! combiner) takes the key's lock, takes all who are in line, and carries them out in one
//! transaction; whoever comes meanwhile is in the next batch. There is no timer: a batch is what
//! has queued up while the last one was in flight, and a request that comes alone is a batch of
//! one.
//!
//! While another process has the lock, a crowd's next batch is put together: its transaction is
//! begun, its tokens are taken and its keys claimed, so that under the lock there is only the work.
//! Elsewhere the lock comes before the connection, because whoever waits for a lock with a
//! connection in hand can keep its holder from having one. Here it is one connection in four at
//! most, idle when it was taken, for 50 ms.
//!
//! Guarantees:
//! - first come, first served, within a process;
//! - each member is answered for itself: one that is refused holds nobody up, and when a batch
//!   fails each of its members is told what became of *it*: done, not done, or unknown;
//! - the line is as long as it is served in a fifth of a second ([`pace`]), and never longer than
//!   [`MOST_WAITING`]: who finds it full is told so at once, so that under three times the load
//!   that can be carried the shop sells on;
//! - the lock is kept over a few batches at most while others wait for it, in this process (an
//!   order with several items, a refund, a restock) or in another.
//!
//! A caller that goes away before its batch begins is left out of it; afterwards its work is done
//! and its answer can be had with the same key.

mod batch;
mod coalesce;
mod gate;
mod line;
mod looks;
mod pace;
mod server;
mod transaction;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::idempotency::{Claim, ClaimRow, LOOK_LIMIT};
use super::orders::place::Place;
use super::payments::Pay;
use super::stock::Exclusion;
use super::{Answer, Conditions, Error, Outcome, Refusal, Shop};
use crate::lock::LockKey;
use crate::probe::{Point, Probe, Seen};

pub use gate::{Gate, Seen as Looked};
use line::Joined;
pub use line::Lines;
pub use looks::Looks;

/// So many may wait for one value in one process, however fast they are served.
pub const MOST_WAITING: usize = 4_096;
/// Whoever finds no room is to hear so at once: where Postgres is too busy to say sooner whether
/// their key is finished, they may ask again. (A tenth of a second is what a person calls at once.)
const REFUSED_WITHIN: Duration = Duration::from_millis(50);
/// The largest batch.
pub const MOST_AT_ONCE: usize = 256;

/// The lines of one process.
#[derive(Debug, Clone, Default)]
pub struct Combiner {
    /// Orders for one item.
    pub orders: Lines<Place>,
    /// Payments from one account.
    pub payments: Lines<Pay>,
    /// What sold-out items are asked about, before they get in line.
    pub gate: Gate,
    /// What those ask who are about to be refused.
    pub looks: Looks,
    pending: Pending,
}

/// A change of one value that can be carried out with others of its kind.
pub trait Work: Send + Sync + Sized + 'static {
    /// What it needs the lock on.
    fn key(&self) -> LockKey;

    /// The key under which it is done once.
    fn claim(&self) -> &Claim;

    /// The lines of its kind.
    fn lines(combiner: &Combiner) -> &Lines<Self>;

    /// It was committed, whether or not anybody still waits for its answer.
    fn done(&self, _shop: &Shop) {}

    /// The work of all members, in their order, inside the transaction: of each the answer, which
    /// is stored with its claim, or why not, and then nothing of it was written. All have the same
    /// key.
    fn perform(
        tx: &mut PgConnection,
        exclusion: &Exclusion<'_>,
        members: &[(&Member<Self>, ClaimRow)],
    ) -> impl Future<Output = Result<Vec<Result<Answer, Refusal>>, Error>> + Send;
}

/// Somebody in line.
#[derive(Debug)]
pub struct Member<W> {
    /// What is wanted.
    pub work: W,
    /// Under which conditions.
    pub conditions: Conditions,
    joined: Instant,
    /// Whether this process has its token's lock.
    has_token: bool,
    announced: Announced,
    reply: oneshot::Sender<Result<Outcome, Error>>,
}

impl<W> Member<W> {
    /// Whether it still waits, and has time to.
    fn is_there(&self, now: Instant) -> bool {
        now < self.conditions.deadline && !self.reply.is_closed()
    }

    fn answer(self, answer: Result<Outcome, Error>) {
        // Whoever hears the answer may use the key again at once.
        drop(self.announced);
        let _ = self.reply.send(answer);
    }
}

/// Has one work done with others of its kind.
///
/// # Errors
/// [`Error`]; then nothing was changed, unless it says that the outcome is unknown.
///
/// # Cancel safety
/// As for [`super::errand::run`].
pub async fn run<W: Work>(shop: &Shop, conditions: &Conditions, work: W) -> Result<Outcome, Error> {
    let announced = match shop.combiner.pending.announce(work.claim()) {
        Ok(announced) => announced,
        Err(refusal) => {
            return finished_or(shop, work.claim(), LOOK_LIMIT, Ok(refusal)).await;
        }
    };
    let claim = work.claim().clone();
    let key = work.key();
    conditions.probe.at(Point::Wait, [Seen::key(key.as_str())]).await;
    let (reply, answer) = oneshot::channel();
    let conditions = conditions.clone();
    let joined = Instant::now();
    let member = Member { work, conditions, joined, has_token: false, announced, reply };
    match W::lines(&shop.combiner).join(&key, member) {
        Joined::First => {
            shop.running.spawn_on(server::serve::<W>(shop.clone(), key), &shop.runtime);
        }
        Joined::Behind => {}
        Joined::Full => {
            metrics::counter!("holdfast_line_full_total").increment(1);
            let full = Error::Overloaded(format!("too many requests wait for {key}"));
            return finished_or(shop, &claim, REFUSED_WITHIN, Err(full)).await;
        }
    }
    answer.await.unwrap_or_else(|_| {
        Err(Error::Unavailable {
            what: "the batch's task",
            cause: "it ended without an answer".to_owned(),
            outcome_unknown: true,
        })
    })
}

/// What is stored under the key, or else why nothing can be done with it now: a finished key is
/// looked up before anything is refused.
async fn finished_or(
    shop: &Shop,
    claim: &Claim,
    within: Duration,
    why: Result<Refusal, Error>,
) -> Result<Outcome, Error> {
    match shop.combiner.looks.look(shop, claim, within).await {
        Some(stored) => Ok(stored.into()),
        None => why.map(Outcome::Refused),
    }
}

/// Passes a point for all members on whom the lab keeps an eye, at once, under what they hold.
pub async fn pass<W: Work>(
    members: impl IntoIterator<Item = &Member<W>>,
    point: Point,
    held: &Exclusion<'_>,
    value: impl Fn(usize) -> Option<i64>,
) {
    let watched = members
        .into_iter()
        .enumerate()
        .filter(|(_, member)| matches!(member.conditions.probe, Probe::Lab(_)));
    let passes = watched.map(|(at, member)| {
        let key = member.work.key();
        let fence = held.fence_of(&key);
        let seen = Seen { key: key.as_str().to_owned(), value: value(at), fence };
        member.conditions.probe.at(point, [seen])
    });
    futures_util::future::join_all(passes).await;
}

/// The keys of the requests that this process works on, each with its fingerprint.
#[derive(Debug, Clone, Default)]
struct Pending(Arc<Mutex<HashMap<String, [u8; 32]>>>);

impl Pending {
    /// Says that a request with that key is worked on; a second one is told so.
    fn announce(&self, claim: &Claim) -> Result<Announced, Refusal> {
        let name = claim.token_name();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(&name) {
            None => {
                all.insert(name.clone(), claim.fingerprint);
                Ok(Announced { pending: self.clone(), name })
            }
            Some(fingerprint) if *fingerprint == claim.fingerprint => Err(Refusal::KeyInFlight),
            Some(_) => Err(Refusal::KeyMismatch),
        }
    }
}

/// A request that is worked on, until this is dropped.
#[derive(Debug)]
struct Announced {
    pending: Pending,
    name: String,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.pending.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}
