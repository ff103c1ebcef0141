//! The line of one key, and the task that serves it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::{Instant, timeout};

use super::{MOST_AT_ONCE, MOST_WAITING, Member, Work, batch};
use crate::lock::{self, Ask, Guards, Kind, LockKey, Tokens, Wait};
use crate::shop::figures::{Holding, Waiting};
use crate::shop::stock::BATCHED;
use crate::shop::{Error, Refusal, Shop};

/// How many batches the lock is kept for while others wait for it.
const BATCHES_BEFORE_OTHERS: u32 = 4;
/// Longer than the lock is waited for in between two batches.
const A_WHILE: Duration = Duration::from_millis(20);
/// And for how long at most, though nobody is known to wait.
const LONGEST_TENURE: Duration = Duration::from_secs(1);

/// The lines of all keys. A key has one while somebody serves it.
#[derive(Debug)]
pub struct Lines<W>(Arc<Mutex<HashMap<LockKey, VecDeque<Member<W>>>>>);

impl<W> Clone for Lines<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W> Default for Lines<W> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// How joining a line came out.
pub(super) enum Joined {
    /// Somebody must begin to serve it.
    First,
    /// It is being served.
    Behind,
    /// There is no room.
    Full,
}

impl<W> Lines<W> {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<LockKey, VecDeque<Member<W>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, key: &LockKey, member: Member<W>) -> Joined {
        let mut lines = self.all();
        match lines.get_mut(key) {
            Some(line) if line.len() >= MOST_WAITING => Joined::Full,
            Some(line) => {
                line.push_back(member);
                Joined::Behind
            }
            None => {
                lines.insert(key.clone(), VecDeque::from([member]));
                Joined::First
            }
        }
    }

    /// The first in line, as many as fit into a batch; and those before them who have gone or are
    /// out of time.
    fn take(&self, key: &LockKey, most: usize) -> Taken<W> {
        let mut taken = Taken { batch: Vec::new(), out: Vec::new() };
        let now = Instant::now();
        if let Some(line) = self.all().get_mut(key) {
            while taken.batch.len() < most
                && let Some(member) = line.pop_front()
            {
                if member.conditions.deadline <= now || member.reply.is_closed() {
                    taken.out.push(member);
                } else {
                    taken.batch.push(member);
                }
            }
        }
        taken
    }

    /// In front of those who came meanwhile.
    fn put_back(&self, key: &LockKey, members: Vec<Member<W>>) {
        if let Some(line) = self.all().get_mut(key) {
            for member in members.into_iter().rev() {
                line.push_front(member);
            }
        }
    }

    fn waiting(&self, key: &LockKey) -> usize {
        self.all().get(key).map_or(0, VecDeque::len)
    }

    /// Whether nobody is in line any more; then the line is closed.
    fn is_over(&self, key: &LockKey) -> bool {
        let mut lines = self.all();
        let over = lines.get(key).is_none_or(VecDeque::is_empty);
        if over {
            lines.remove(key);
        }
        over
    }
}

/// Who was taken out of a line.
struct Taken<W> {
    batch: Vec<Member<W>>,
    /// They have gone, or their time is up.
    out: Vec<Member<W>>,
}

/// Closes the line when whoever serves it ends by a panic: those in it are told, and whoever comes
/// next begins anew.
struct Closing<W> {
    lines: Lines<W>,
    key: LockKey,
}

impl<W> Drop for Closing<W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lines.all().remove(&self.key);
        }
    }
}

/// The lock, while a line has it.
struct Tenure {
    guards: Guards,
    _holding: Holding,
    since: Instant,
    batches: u32,
}

/// Serves a line until nobody is in it.
pub(super) async fn serve<W: Work>(shop: Shop, key: LockKey) {
    let lines = W::lines(&shop.combiner).clone();
    let _closing = Closing { lines: lines.clone(), key: key.clone() };
    // Tokens of a batch are given back on the way to the next one's.
    let mut server = Server { tokens: shop.locks.tokens(), shop, lines, key };
    let mut tenure: Option<Tenure> = None;
    loop {
        let Some(mut held) = tenure.take() else {
            if server.lines.is_over(&server.key) {
                return;
            }
            tenure = server.acquire().await;
            continue;
        };
        let members = server.take(MOST_AT_ONCE).await;
        if members.is_empty() {
            futures_util::future::join(held.guards.release(), server.tokens.flush()).await;
            continue;
        }
        metrics::histogram!("holdfast_batch_requests").record(members.len() as f64);
        let end =
            batch::carry_out(&server.shop, &mut held.guards, members, &mut server.tokens).await;
        held.batches += 1;
        match end {
            batch::End::Held if server.goes_on(&held) => tenure = Some(held),
            batch::End::Held => tenure = server.let_others(held.guards).await,
            batch::End::Lost => drop(held.guards),
            batch::End::MayStillRun => held.guards.leave_to_expire(),
            batch::End::Away(error) => {
                held.guards.release().await;
                server.turn_away(&Err(error), Instant::now()).await;
            }
        }
    }
}

/// Whoever serves one line.
struct Server<W> {
    shop: Shop,
    lines: Lines<W>,
    key: LockKey,
    tokens: Tokens,
}

impl<W: Work> Server<W> {
    /// The next in line. Who is out of time is told so; who has gone leaves its token.
    async fn take(&mut self, most: usize) -> Vec<Member<W>> {
        let Taken { batch, out } = self.lines.take(&self.key, most);
        if !out.is_empty() {
            let late = Err(Error::Overloaded("the request's time is up".to_owned()));
            batch::dismiss(out, &late, &mut self.tokens).await;
        }
        batch
    }

    /// Whether the next batch may follow at once. Others wait for as little as possible: a batch
    /// that is not full yet is the better for being collected while it is their turn.
    fn goes_on(&self, held: &Tenure) -> bool {
        let guard = held.guards.guard(&self.key).and_then(lock::Guard::as_fenced);
        let wanted = guard.is_none_or(lock::fenced::FencedGuard::is_wanted);
        let full = self.lines.waiting(&self.key) >= MOST_AT_ONCE;
        let turn = full && held.batches < BATCHES_BEFORE_OTHERS;
        (turn || !wanted) && held.since.elapsed() < LONGEST_TENURE
    }

    /// Gets in line for the lock again and gives it back, in this order, so that both are one call.
    async fn let_others(&mut self, guards: Guards) -> Option<Tenure> {
        if self.lines.waiting(&self.key) == 0 {
            guards.release().await;
            return None;
        }
        let mut again = pin!(self.acquire());
        let at_once = poll_fn(|context| Poll::Ready(again.as_mut().poll(context))).await;
        guards.release().await;
        match at_once {
            Poll::Ready(tenure) => tenure,
            Poll::Pending => again.await,
        }
    }

    /// Waits for the lock. Without it, those who waited for it are told why.
    async fn acquire(&mut self) -> Option<Tenure> {
        let began = Instant::now();
        let (locks, key) = (self.shop.locks.clone(), self.key.clone());
        let ask = Ask {
            kind: Kind::Fenced,
            wait: Wait::Notify,
            ttl: None,
            deadline: began + locks.settings().timeout,
            keys: std::slice::from_ref(&key),
        };
        let waiting = Waiting::begin(&BATCHED);
        let mut asking = pin!(locks.acquire(ask));
        let outcome = loop {
            match timeout(A_WHILE, &mut asking).await {
                Ok(outcome) => break outcome,
                Err(_) => match select(&mut asking, pin!(self.tend())).await {
                    Either::Left((outcome, tending)) => {
                        tending.await;
                        break outcome;
                    }
                    Either::Right(_) => {}
                },
            }
        };
        waiting.answered();
        let why = match outcome {
            Ok(lock::Outcome::Acquired(guards)) => {
                let holding = Holding::begin(&BATCHED);
                let since = Instant::now();
                return Some(Tenure { guards, _holding: holding, since, batches: 0 });
            }
            Ok(lock::Outcome::Busy(holder)) => Ok(Refusal::LockBusy(holder)),
            Ok(lock::Outcome::TimedOut { waited, holder }) => {
                // Who came later has not waited so long, and waits on.
                let why = Ok(Refusal::LockTimeout { waited, holder });
                self.turn_away(&why, began).await;
                return None;
            }
            Err(error) => Err(error.into()),
        };
        self.turn_away(&why, Instant::now()).await;
        None
    }

    /// While the lock is waited for: the tokens of those in line are taken and their keys looked
    /// up, so that a request that is done is answered, and the second one with a token is told so,
    /// here or elsewhere, instead of waiting behind the first.
    async fn tend(&mut self) {
        let members = self.take(MOST_WAITING).await;
        let (known, fresh): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| member.has_token);
        let fresh = batch::open(&self.shop, fresh, &mut self.tokens).await;
        let fresh = batch::replay(&self.shop, fresh, &mut self.tokens).await;
        self.lines.put_back(&self.key, known.into_iter().chain(fresh).collect());
    }

    /// Tells those who joined until then why they can't be served. Whose key is finished gets its
    /// answer all the same.
    async fn turn_away(&mut self, why: &Result<Refusal, Error>, until: Instant) {
        let members = self.take(usize::MAX).await;
        let (early, later): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| member.joined <= until);
        self.lines.put_back(&self.key, later);
        let early = batch::replay(&self.shop, early, &mut self.tokens).await;
        batch::dismiss(early, why, &mut self.tokens).await;
    }
}
