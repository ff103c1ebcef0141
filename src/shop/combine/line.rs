//! The line of one key, and the task that serves it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, MaybeDone, maybe_done, select};
use tokio::time::{Instant, timeout};

use super::{MOST_AT_ONCE, MOST_WAITING, Member, Work, batch};
use crate::lock::{self, Ask, Guards, Kind, LockKey, Tokens, Wait};
use crate::shop::figures::{Holding, Waiting};
use crate::shop::stock::BATCHED;
use crate::shop::{Error, Refusal, Shop};

/// How many batches the lock is kept for while others wait for it.
const BATCHES_BEFORE_OTHERS: u32 = 4;
/// Longer than the lock is waited for in between two batches.
const A_WHILE: Duration = Duration::from_millis(50);
/// And for how long at most, though nobody is known to wait.
const LONGEST_TENURE: Duration = Duration::from_secs(1);

/// The lines of all keys. A key has one while somebody serves it.
#[derive(Debug)]
pub struct Lines<W>(Arc<Mutex<HashMap<LockKey, Line<W>>>>);

/// Who waits for one key.
#[derive(Debug)]
struct Line<W> {
    members: VecDeque<Member<W>>,
    /// Out of line for a moment, to be put back. They wait too.
    away: usize,
}

impl<W> Line<W> {
    fn waiting(&self) -> usize {
        self.members.len() + self.away
    }
}

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
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<LockKey, Line<W>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, key: &LockKey, member: Member<W>) -> Joined {
        let mut lines = self.all();
        match lines.get_mut(key) {
            Some(line) if line.waiting() >= MOST_WAITING => Joined::Full,
            Some(line) => {
                line.members.push_back(member);
                Joined::Behind
            }
            None => {
                let line = Line { members: VecDeque::from([member]), away: 0 };
                lines.insert(key.clone(), line);
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
                && let Some(member) = line.members.pop_front()
            {
                if member.is_there(now) {
                    taken.batch.push(member);
                } else {
                    taken.out.push(member);
                }
            }
        }
        taken
    }

    /// All who are in line, until some or all are put back. They keep their places.
    fn borrow(&self, key: &LockKey) -> Vec<Member<W>> {
        let mut lines = self.all();
        let Some(line) = lines.get_mut(key) else { return Vec::new() };
        line.away = line.members.len();
        std::mem::take(&mut line.members).into()
    }

    /// In front of those who came meanwhile.
    fn put_back(&self, key: &LockKey, members: Vec<Member<W>>) {
        if let Some(line) = self.all().get_mut(key) {
            line.away = 0;
            for member in members.into_iter().rev() {
                line.members.push_front(member);
            }
        }
    }

    fn waiting(&self, key: &LockKey) -> usize {
        self.all().get(key).map_or(0, Line::waiting)
    }

    /// Whether nobody is in line any more; then the line is closed.
    fn is_over(&self, key: &LockKey) -> bool {
        let mut lines = self.all();
        let over = lines.get(key).is_none_or(|line| line.waiting() == 0);
        if over {
            lines.remove(key);
        }
        over
    }
}

/// A request for the lock on its way.
type Asking = Pin<Box<MaybeDone<Pin<Box<dyn Future<Output = Asked> + Send>>>>>;
type Asked = Result<lock::Outcome, lock::Error>;

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
            let asking = server.asking();
            tenure = server.wait_for(asking).await;
            continue;
        };
        let members = server.take().await;
        if members.is_empty() {
            futures_util::future::join(held.guards.release(), server.tokens.flush()).await;
            continue;
        }
        metrics::histogram!("holdfast_batch_requests").record(members.len() as f64);
        let (told, end) =
            batch::carry_out(&server.shop, &mut held.guards, members, &mut server.tokens).await;
        held.batches += 1;
        batch::answer(told, &mut server.tokens).await;
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
    fn goes_on(&self, held: &Tenure) -> bool {
        let guard = held.guards.guard(&self.key).and_then(lock::Guard::as_fenced);
        let wanted = guard.is_none_or(lock::fenced::FencedGuard::is_wanted);
        let full = self.lines.waiting(&self.key) >= MOST_AT_ONCE;
        let turn = full && held.batches < BATCHES_BEFORE_OTHERS;
        (turn || !wanted) && held.since.elapsed() < LONGEST_TENURE
    }

    /// Gets in line for the lock again and gives it back, in this order, so that both are one call.
    async fn let_others(&mut self, guards: Guards) -> Option<Tenure> {
        let mut again = (self.lines.waiting(&self.key) > 0).then(|| self.asking());
        if let Some(again) = &mut again {
            // In line once it was polled; it is not had before ours is given back.
            let _ = poll_fn(|context| Poll::Ready(again.as_mut().poll(context))).await;
        }
        guards.release().await;
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
    async fn wait_for(&mut self, mut asking: Asking) -> Option<Tenure> {
        let began = Instant::now();
        let waiting = Waiting::begin(&BATCHED);
        while timeout(A_WHILE, &mut asking).await.is_err() {
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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use uuid::Uuid;

    use super::super::Pending;
    use super::*;
    use crate::probe::Probe;
    use crate::shop::idempotency::{Claim, ORDERS_PATH};
    use crate::shop::{Conditions, Key, Outcome, UserId};

    /// Somebody who wants that, and the end of the line that hears the answer.
    fn member(work: usize) -> (Member<usize>, oneshot::Receiver<Result<Outcome, Error>>) {
        let user = UserId(Uuid::nil());
        let path = ORDERS_PATH.to_owned();
        let claim = Claim { user, path, key: Key::mint(), fingerprint: [0; 32] };
        let conditions = Conditions {
            strategy: &BATCHED,
            wait: None,
            ttl: None,
            probe: Probe::Off,
            deadline: Instant::now() + Duration::from_secs(60),
            request_id: Uuid::nil(),
        };
        let announced = Pending::default().announce(&claim).unwrap_or_else(|_| unreachable!());
        let (reply, answer) = oneshot::channel();
        let joined = Instant::now();
        (Member { work, conditions, joined, has_token: false, announced, reply }, answer)
    }

    fn key() -> LockKey {
        LockKey::new("{sku:tea}").unwrap_or_else(|_| unreachable!())
    }

    fn works(members: impl IntoIterator<Item = Member<usize>>) -> Vec<usize> {
        members.into_iter().map(|member| member.work).collect()
    }

    #[test]
    fn a_full_line_takes_nobody_though_its_members_are_out_for_a_moment() {
        let lines = Lines::default();
        let mut answers = Vec::new();
        let mut join = |work| {
            let (member, answer) = member(work);
            answers.push(answer);
            lines.join(&key(), member)
        };
        assert!(matches!(join(0), Joined::First));
        for work in 1..MOST_WAITING {
            assert!(matches!(join(work), Joined::Behind), "{work}");
        }
        assert!(matches!(join(MOST_WAITING), Joined::Full));
        let mut all = lines.borrow(&key());
        assert_eq!(all.len(), MOST_WAITING);
        assert!(matches!(join(MOST_WAITING), Joined::Full), "they still wait");
        assert!(!lines.is_over(&key()));
        // Who is answered on the way leaves room.
        all.truncate(MOST_WAITING - 2);
        lines.put_back(&key(), all);
        assert!(matches!(join(MOST_WAITING), Joined::Behind));
        assert!(matches!(join(MOST_WAITING + 1), Joined::Behind));
        assert!(matches!(join(MOST_WAITING + 2), Joined::Full));
    }

    #[test]
    fn whoever_came_first_is_in_the_first_batch() {
        let lines = Lines::default();
        let mut answers = Vec::new();
        let mut join = |work| {
            let (member, answer) = member(work);
            answers.push(answer);
            lines.join(&key(), member);
        };
        (0..MOST_AT_ONCE).for_each(&mut join);
        let early = lines.borrow(&key());
        join(MOST_AT_ONCE);
        lines.put_back(&key(), early);
        assert_eq!(
            works(lines.take(&key(), MOST_AT_ONCE).batch),
            (0..MOST_AT_ONCE).collect::<Vec<_>>()
        );
        // Who has gone is left out.
        join(MOST_AT_ONCE + 1);
        answers.remove(MOST_AT_ONCE);
        assert_eq!(works(lines.take(&key(), MOST_AT_ONCE).batch), [MOST_AT_ONCE + 1]);
        assert!(lines.take(&key(), MOST_AT_ONCE).batch.is_empty() && lines.is_over(&key()));
    }
}
