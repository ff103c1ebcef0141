//! The line of one key, and the task that serves it.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{MOST_AT_ONCE, MOST_WAITING, Member, Work, batch};
use crate::lock::{self, Ask, Guards, Kind, LockKey, Tokens, Wait};
use crate::shop::figures::{Holding, Waiting};
use crate::shop::stock::BATCHED;
use crate::shop::{Error, Outcome, Refusal, Shop};

/// How many batches the lock is kept for while others wait for it.
const BATCHES_BEFORE_OTHERS: u32 = 4;
/// Longer than the lock is waited for in between two batches.
const A_WHILE: Duration = Duration::from_millis(20);
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

    /// The first in line, as many as fit into a batch; who has gone or is out of time is left out.
    fn take(&self, key: &LockKey) -> Vec<Member<W>> {
        let mut batch = Vec::new();
        let mut late = Vec::new();
        let now = Instant::now();
        if let Some(line) = self.all().get_mut(key) {
            while batch.len() < MOST_AT_ONCE
                && let Some(member) = line.members.pop_front()
            {
                if member.conditions.deadline <= now {
                    late.push(member);
                } else if !member.reply.is_closed() {
                    batch.push(member);
                }
            }
        }
        for member in late {
            member.answer(Err(Error::Overloaded("the request's time is up".to_owned())));
        }
        batch
    }

    fn take_all(&self, key: &LockKey) -> VecDeque<Member<W>> {
        self.all().get_mut(key).map(|line| std::mem::take(&mut line.members)).unwrap_or_default()
    }

    /// All who are in line, until they are put back. They keep their places.
    fn borrow_all(&self, key: &LockKey) -> Vec<Member<W>> {
        let mut lines = self.all();
        let Some(line) = lines.get_mut(key) else { return Vec::new() };
        line.away = line.members.len();
        std::mem::take(&mut line.members).into()
    }

    /// In front of those who came meanwhile; not necessarily all who were borrowed.
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

/// The lock, while this line has it.
struct Tenure {
    guards: Guards,
    _holding: Holding,
    since: Instant,
    batches: u32,
}

/// Serves a line until nobody is in it.
pub(super) async fn serve<W: Work>(shop: Shop, key: LockKey) {
    let lines = W::lines(&shop.combiner).clone();
    let mut tenure: Option<Tenure> = None;
    // Those of a batch are given back on the way to the next one's.
    let mut tokens = shop.locks.tokens();
    loop {
        let Some(mut held) = (match tenure.take() {
            Some(held) => Some(held),
            // Whoever has given the lock to others does not want it again for nobody.
            None if lines.is_over(&key) => return,
            None => acquire(&shop, &lines, &key, &mut tokens).await,
        }) else {
            continue;
        };
        let members = lines.take(&key);
        if members.is_empty() {
            futures_util::future::join(held.guards.release(), tokens.flush()).await;
            if lines.is_over(&key) {
                return;
            }
            continue;
        }
        metrics::histogram!("holdfast_batch_requests").record(members.len() as f64);
        let end = batch::carry_out(&shop, &mut held.guards, members, &mut tokens).await;
        held.batches += 1;
        match end {
            batch::End::Held if goes_on(&lines, &key, &held) => tenure = Some(held),
            batch::End::Held => {
                tenure = let_others(&shop, &lines, &key, held.guards, &mut tokens).await;
            }
            batch::End::Lost => drop(held.guards),
            batch::End::MayStillRun => held.guards.leave_to_expire(),
        }
    }
}

/// Whether the next batch may follow at once. Others wait for as little as possible: a batch that
/// is not full yet is the better for being collected while it is their turn.
fn goes_on<W>(lines: &Lines<W>, key: &LockKey, held: &Tenure) -> bool {
    let guard = held.guards.guard(key).and_then(lock::Guard::as_fenced);
    let wanted = guard.is_none_or(lock::fenced::FencedGuard::is_wanted);
    let full = lines.waiting(key) >= MOST_AT_ONCE;
    let turn = full && held.batches < BATCHES_BEFORE_OTHERS;
    (turn || !wanted) && held.since.elapsed() < LONGEST_TENURE
}

/// Gets in line for the lock again and gives it back, in this order, so that both are one call.
async fn let_others<W: Work>(
    shop: &Shop,
    lines: &Lines<W>,
    key: &LockKey,
    guards: Guards,
    tokens: &mut Tokens,
) -> Option<Tenure> {
    if lines.waiting(key) == 0 {
        guards.release().await;
        return None;
    }
    let mut again = pin!(acquire(shop, lines, key, tokens));
    let at_once = std::future::poll_fn(|context| Poll::Ready(again.as_mut().poll(context))).await;
    guards.release().await;
    match at_once {
        Poll::Ready(tenure) => tenure,
        Poll::Pending => again.await,
    }
}

/// Waits for the lock. Without it, those who waited for it are told why, and nobody has it.
///
/// When that takes a while their tokens are taken meanwhile, so that a second request with one of
/// them is told so, here or elsewhere, instead of waiting behind the first.
async fn acquire<W: Work>(
    shop: &Shop,
    lines: &Lines<W>,
    key: &LockKey,
    tokens: &mut Tokens,
) -> Option<Tenure> {
    let began = Instant::now();
    let ask = Ask {
        kind: Kind::Fenced,
        wait: Wait::Notify,
        ttl: None,
        deadline: began + shop.locks.settings().timeout,
        keys: std::slice::from_ref(key),
    };
    let waiting = Waiting::begin(&BATCHED);
    let mut asking = pin!(shop.locks.acquire(ask));
    let outcome = loop {
        match timeout(A_WHILE, &mut asking).await {
            Ok(outcome) => break outcome,
            Err(_) => {
                let waiting = lines.borrow_all(key);
                lines.put_back(key, batch::open(shop, waiting, tokens).await);
            }
        }
    };
    waiting.answered();
    let answer: Result<Refusal, Error> = match outcome {
        Ok(lock::Outcome::Acquired(guards)) => {
            return Some(Tenure {
                guards,
                _holding: Holding::begin(&BATCHED),
                since: Instant::now(),
                batches: 0,
            });
        }
        Ok(lock::Outcome::Busy(holder)) => Ok(Refusal::LockBusy(holder)),
        Ok(lock::Outcome::TimedOut { waited, holder }) => {
            Ok(Refusal::LockTimeout { waited, holder })
        }
        Err(error) => Err(error.into()),
    };
    let members = lines.take_all(key);
    for member in &members {
        tokens.finish(&member.work.claim().token_name());
    }
    tokens.flush().await;
    for member in members {
        member.answer(answer.clone().map(Outcome::Refused));
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use uuid::Uuid;

    use super::super::Pending;
    use super::*;
    use crate::probe::Probe;
    use crate::shop::idempotency::{Claim, ORDERS_PATH};
    use crate::shop::{Conditions, Key, UserId};

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
        (Member { work, conditions, has_token: false, announced, reply }, answer)
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
        let mut all = lines.borrow_all(&key());
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
        let early = lines.borrow_all(&key());
        join(MOST_AT_ONCE);
        lines.put_back(&key(), early);
        assert_eq!(works(lines.take(&key())), (0..MOST_AT_ONCE).collect::<Vec<_>>());
        // Who has gone is left out.
        join(MOST_AT_ONCE + 1);
        answers.remove(MOST_AT_ONCE);
        assert_eq!(works(lines.take(&key())), [MOST_AT_ONCE + 1]);
        assert!(lines.take(&key()).is_empty() && lines.is_over(&key()));
    }
}
