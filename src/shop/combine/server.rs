//! Who serves one line: takes the lock, carries out who is in line, and lets others have it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, MaybeDone, join, maybe_done, select};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::{self, Told};
use super::line::{Lines, Taken};
use super::transaction::{Begun, Ready};
use super::{MOST_AT_ONCE, Member, Work};
use crate::db::{Spare, Transaction};
use crate::lock::{self, Ask, Guards, Kind, LockKey, Tokens, Wait};
use crate::shop::early::A_WHILE;
use crate::shop::figures::{Holding, Waiting};
use crate::shop::stock::BATCHED;
use crate::shop::{Error, Refusal, Shop};

/// How many batches the lock is kept for while others wait for it.
const BATCHES_BEFORE_OTHERS: u32 = 4;
/// And for how long at most, though nobody is known to wait.
const LONGEST_TENURE: Duration = Duration::from_secs(1);

/// A request for the lock on its way.
type Asking = Pin<Box<MaybeDone<Pin<Box<dyn Future<Output = Asked> + Send>>>>>;
type Asked = Result<lock::Outcome, lock::Error>;

/// Closes the line when whoever serves it ends by a panic: those in it are told, and whoever comes
/// next begins anew.
struct Closing<W> {
    lines: Lines<W>,
    key: LockKey,
}

impl<W> Drop for Closing<W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lines.close(&self.key);
        }
    }
}

/// The lock, while a line has it.
struct Tenure<W> {
    guards: Guards,
    holding: Holding,
    since: Instant,
    batches: u32,
    /// What was done for its first batch while the lock was waited for.
    early: Option<Early<W>>,
}

/// A transaction that waits for its lock, and perhaps a batch, which has its tokens by then.
struct Early<W> {
    ready: Ready,
    /// None unless they are claimed.
    members: Vec<Member<W>>,
    /// As long as it waits.
    _permit: OwnedSemaphorePermit,
}

impl<W> Early<W> {
    fn ended(&self, end: &'static str) {
        if matches!(self.ready, Ready::Claimed(_)) {
            metrics::counter!("holdfast_batches_early_total", "end" => end).increment(1);
        }
    }
}

/// Serves a line until nobody is in it.
pub(super) async fn serve<W: Work>(shop: Shop, key: LockKey) {
    let lines = W::lines(&shop.combiner).clone();
    let _closing = Closing { lines: lines.clone(), key: key.clone() };
    // Tokens of a batch are given back on the way to the next one's.
    let tokens = shop.locks.tokens();
    let mut server = Server { shop, lines, key, tokens, expected: None };
    let mut tenure: Option<Tenure<W>> = None;
    let mut last = Instant::now();
    loop {
        let Some(mut held) = tenure.take() else {
            if server.lines.is_over(&server.key) {
                return;
            }
            let asking = server.asking();
            tenure = server.wait_for(asking).await;
            continue;
        };
        let early = held.early.take();
        let (mut members, ready) = match early {
            Some(early) => {
                early.ended("used");
                (early.members, early.ready)
            }
            None => (Vec::new(), Ready::No),
        };
        if members.is_empty() {
            members = server.take().await;
        }
        if members.is_empty() {
            join(held.guards.release(), server.tokens.flush()).await;
            ready.give_up().await;
            continue;
        }
        metrics::histogram!("holdfast_batch_requests").record(members.len() as f64);
        let members = batch::open(&server.shop, members, &mut server.tokens).await;
        let (told, end) = batch::carry_out(&server.shop, &mut held.guards, members, ready).await;
        held.batches += 1;
        server.lines.served(&server.key, told.len(), last.elapsed());
        last = Instant::now();
        server.expected = Some(told.len() + server.lines.waiting(&server.key));
        if matches!(end, batch::End::Held) && !server.goes_on(&held) {
            tenure = server.let_others(held.guards, held.holding, told).await;
            continue;
        }
        batch::answer(told, &mut server.tokens).await;
        match end {
            batch::End::Held => tenure = Some(held),
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
    /// How many were here lately: who was answered, and who waited meanwhile.
    expected: Option<usize>,
}

impl<W: Work> Server<W> {
    /// The next in line. Who is out of time is told so; who has gone leaves its token.
    async fn take(&mut self) -> Vec<Member<W>> {
        let Taken { batch, out } = self.lines.take(&self.key, MOST_AT_ONCE);
        self.let_go(out).await;
        batch
    }

    async fn let_go(&mut self, members: Vec<Member<W>>) {
        if !members.is_empty() {
            let late = Err(Error::Overloaded("the request's time is up".to_owned()));
            batch::dismiss(members, &late, &mut self.tokens).await;
        }
    }

    /// Whether the next batch may follow at once. Others wait for as little as possible: a batch
    /// that is not full yet is the better for being collected while it is their turn.
    fn goes_on(&self, held: &Tenure<W>) -> bool {
        let guard = held.guards.guard(&self.key).and_then(lock::Guard::as_fenced);
        let wanted = guard.is_none_or(lock::fenced::FencedGuard::is_wanted);
        let full = self.lines.waiting(&self.key) >= MOST_AT_ONCE;
        let turn = full && held.batches < BATCHES_BEFORE_OTHERS;
        (turn || !wanted) && held.since.elapsed() < LONGEST_TENURE
    }

    /// Gets in line for the lock again and gives it back, in this order, so that both are one call.
    /// Where there was a crowd there will be one, so the next turn is asked for although nobody may
    /// be in line yet.
    ///
    /// Only then the members are answered: others wait for the lock, and waking so many clients
    /// would hold it up.
    async fn let_others(
        &mut self,
        guards: Guards,
        holding: Holding,
        told: Vec<(Member<W>, Told)>,
    ) -> Option<Tenure<W>> {
        let mut again = (self.expected > Some(1)).then(|| self.asking());
        if let Some(again) = &mut again {
            // In line once it was polled; it is not had before ours is given back.
            let _ = poll_fn(|context| Poll::Ready(again.as_mut().poll(context))).await;
        }
        guards.release().await;
        // Not when the next turn comes: until then it is others who hold it.
        drop(holding);
        batch::answer(told, &mut self.tokens).await;
        match again {
            Some(again) => self.wait_for(again).await,
            None => None,
        }
    }

    /// Asks for the lock, as soon as it is polled.
    fn asking(&self) -> Asking {
        let (locks, key) = (self.shop.locks.clone(), self.key.clone());
        Box::pin(maybe_done(Box::pin(async move {
            let ask = Ask {
                kind: Kind::Fenced,
                wait: Wait::Notify,
                ttl: None,
                deadline: Instant::now() + locks.settings().timeout,
                keys: &[key],
            };
            locks.acquire(ask).await
        })))
    }

    /// Waits for the lock. Without it, those who waited for it are told why.
    async fn wait_for(&mut self, mut asking: Asking) -> Option<Tenure<W>> {
        let began = Instant::now();
        let waiting = Waiting::begin(&BATCHED);
        let early = self.early(&mut asking, began + A_WHILE).await;
        while timeout(A_WHILE, &mut asking).await.is_err() {
            if self.lines.waiting(&self.key) == 0 {
                // The crowd has gone: nobody else need wait for our turn.
                self.tokens.flush().await;
                return None;
            }
            // The lock may be had meanwhile; who is being tended is put back first.
            let tending = pin!(self.tend());
            if let Either::Left(((), tending)) = select(&mut asking, tending).await {
                tending.await;
                break;
            }
        }
        let outcome = asking.as_mut().take_output()?;
        waiting.answered();
        let why = match outcome {
            Ok(lock::Outcome::Acquired(guards)) => {
                let holding = Holding::begin(&BATCHED);
                let since = Instant::now();
                return Some(Tenure { guards, holding, since, batches: 0, early });
            }
            Ok(lock::Outcome::Busy(holder)) => Ok(Refusal::LockBusy(holder)),
            Ok(lock::Outcome::TimedOut { waited, holder }) => {
                // Who came later has not waited so long, and waits on.
                let why = Ok(Refusal::LockTimeout { waited, holder });
                self.put_back(early).await;
                self.turn_away(&why, began).await;
                return None;
            }
            Err(error) => Err(error.into()),
        };
        self.put_back(early).await;
        self.turn_away(&why, Instant::now()).await;
        None
    }

    /// While another has the lock, in a crowd: a transaction is begun, if there is a connection to
    /// spare, and as soon as as many are here as there were lately, the next batch is put together.
    /// It waits until `until` at most for the lock to be had.
    async fn early(&mut self, asking: &mut Asking, until: Instant) -> Option<Early<W>> {
        let expected = self.expected.filter(|expected| *expected > 1)?;
        let Spare { connection, permit } = self.shop.pool.spare()?;
        let tx = Transaction::begin(connection, until).await.ok()?;
        let mut early = Early { ready: Ready::Open(tx), members: Vec::new(), _permit: permit };
        let all_here = {
            let filled = pin!(self.lines.filled(&self.key, expected.min(MOST_AT_ONCE)));
            matches!(timeout_at(until, select(&mut *asking, filled)).await, Ok(Either::Right(_)))
        };
        if all_here {
            early = self.put_together(early, until).await;
        }
        match timeout_at(until, asking).await {
            Ok(()) => Some(early),
            Err(_) => {
                self.put_back(Some(early)).await;
                None
            }
        }
    }

    /// Takes the tokens of all who are in line, and claims their keys; if that takes too long, they
    /// are in line again.
    async fn put_together(&mut self, early: Early<W>, until: Instant) -> Early<W> {
        let Ready::Open(tx) = early.ready else { return early };
        let members = self.take().await;
        let members = batch::open(&self.shop, members, &mut self.tokens).await;
        if members.is_empty() {
            return Early { ready: Ready::Open(tx), members, ..early };
        }
        match Begun::claim(tx, &members, false, until).await {
            Ok(begun) => Early { ready: Ready::Claimed(begun), members, ..early },
            Err(error) => {
                tracing::debug!(%error, "a batch will be put together when the lock is had");
                self.lines.put_back(&self.key, members);
                Early { ready: Ready::No, ..early }
            }
        }
    }

    async fn put_back(&mut self, early: Option<Early<W>>) {
        if let Some(early) = early {
            early.ended("given-up");
            early.ready.give_up().await;
            self.lines.put_back(&self.key, early.members);
        }
    }

    /// While the lock is waited for: the tokens of those in line are taken and their keys looked
    /// up, so that a request that is done is answered, and the second one with a token is told so,
    /// here or elsewhere, instead of waiting behind the first.
    async fn tend(&mut self) {
        let now = Instant::now();
        let (there, out): (Vec<_>, Vec<_>) =
            self.lines.borrow(&self.key).into_iter().partition(|member| member.is_there(now));
        self.let_go(out).await;
        let (known, fresh): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|member| member.has_token);
        let fresh = batch::open(&self.shop, fresh, &mut self.tokens).await;
        let fresh = batch::replay(&self.shop, fresh, &mut self.tokens).await;
        self.lines.put_back(&self.key, known.into_iter().chain(fresh).collect());
    }

    /// Tells those who joined until then why they can't be served. Whose key is finished gets its
    /// answer all the same.
    async fn turn_away(&mut self, why: &Result<Refusal, Error>, until: Instant) {
        let (early, later): (Vec<_>, Vec<_>) =
            self.lines.borrow(&self.key).into_iter().partition(|member| member.joined <= until);
        self.lines.put_back(&self.key, later);
        let early = batch::replay(&self.shop, early, &mut self.tokens).await;
        batch::dismiss(early, why, &mut self.tokens).await;
    }
}
