//! The lines of all keys: who waits for which.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Member;
use super::pace::Pace;
use crate::lock::LockKey;

/// The lines of all keys. A key has one while somebody serves it.
#[derive(Debug)]
pub struct Lines<W>(Arc<Mutex<HashMap<LockKey, Line<W>>>>);

/// Who waits for one key.
#[derive(Debug)]
struct Line<W> {
    members: VecDeque<Member<W>>,
    /// Out of line for a moment, to be put back. They wait too.
    away: usize,
    /// How fast it is served, and so how many may wait.
    pace: Pace,
    /// How many somebody waits for to be in it, and how they are told.
    expected: usize,
    filled: Arc<Notify>,
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
            Some(line) if line.waiting() >= line.pace.room() => Joined::Full,
            Some(line) => {
                line.members.push_back(member);
                if line.members.len() == line.expected {
                    line.filled.notify_one();
                }
                Joined::Behind
            }
            None => {
                let members = VecDeque::from([member]);
                let (pace, filled) = (Pace::default(), Arc::default());
                let line = Line { members, away: 0, pace, expected: 0, filled };
                lines.insert(key.clone(), line);
                Joined::First
            }
        }
    }

    /// The first in line, as many as fit into a batch; and those before them who have gone or are
    /// out of time.
    pub(super) fn take(&self, key: &LockKey, most: usize) -> Taken<W> {
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
    pub(super) fn borrow(&self, key: &LockKey) -> Vec<Member<W>> {
        let mut lines = self.all();
        let Some(line) = lines.get_mut(key) else { return Vec::new() };
        line.away = line.members.len();
        std::mem::take(&mut line.members).into()
    }

    /// In front of those who came meanwhile.
    pub(super) fn put_back(&self, key: &LockKey, members: Vec<Member<W>>) {
        if let Some(line) = self.all().get_mut(key) {
            line.away = 0;
            for member in members.into_iter().rev() {
                line.members.push_front(member);
            }
        }
    }

    /// A batch of so many was served, in so long since the one before it.
    pub(super) fn served(&self, key: &LockKey, members: usize, took: Duration) {
        if let Some(line) = self.all().get_mut(key) {
            line.pace.served(members, took);
        }
    }

    pub(super) fn waiting(&self, key: &LockKey) -> usize {
        self.all().get(key).map_or(0, Line::waiting)
    }

    /// Returns when so many are in line.
    ///
    /// # Cancel safety
    /// Safe: it only listens.
    pub(super) async fn filled(&self, key: &LockKey, expected: usize) {
        loop {
            let filled = {
                let mut lines = self.all();
                let Some(line) = lines.get_mut(key) else { return };
                line.expected = expected;
                if line.members.len() >= expected {
                    return;
                }
                line.filled.clone()
            };
            filled.notified().await;
        }
    }

    /// Sends all away who are in line.
    pub(super) fn close(&self, key: &LockKey) {
        self.all().remove(key);
    }

    /// Whether nobody is in line any more; then the line is closed.
    pub(super) fn is_over(&self, key: &LockKey) -> bool {
        let mut lines = self.all();
        let over = lines.get(key).is_none_or(|line| line.waiting() == 0);
        if over {
            lines.remove(key);
        }
        over
    }
}

/// Who was taken out of a line.
pub(super) struct Taken<W> {
    pub batch: Vec<Member<W>>,
    /// They have gone, or their time is up.
    pub out: Vec<Member<W>>,
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use uuid::Uuid;

    use super::super::{MOST_AT_ONCE, MOST_WAITING, Pending};
    use super::*;
    use crate::probe::Probe;
    use crate::shop::idempotency::{Claim, ORDERS_PATH};
    use crate::shop::stock::BATCHED;
    use crate::shop::{Conditions, Error, Key, Outcome, USUAL_HOLD, UserId};

    /// Somebody who wants that, and the end of the line that hears the answer.
    fn member(work: usize) -> (Member<usize>, oneshot::Receiver<Result<Outcome, Error>>) {
        let user = UserId(Uuid::nil());
        let path = ORDERS_PATH.to_owned();
        let claim = Claim { user, path, key: Key::mint(), fingerprint: [0; 32] };
        let conditions = Conditions {
            strategy: &BATCHED,
            wait: None,
            manner: crate::lock::Manner::default(),
            ttl: None,
            probe: Probe::Off,
            hold: USUAL_HOLD,
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

    /// They get in line; who hears their answers is kept.
    fn join(
        lines: &Lines<usize>,
        answers: &mut Vec<oneshot::Receiver<Result<Outcome, Error>>>,
        work: usize,
    ) -> Joined {
        let (member, answer) = member(work);
        answers.push(answer);
        lines.join(&key(), member)
    }

    #[test]
    fn a_full_line_takes_nobody_though_its_members_are_out_for_a_moment() {
        let lines = Lines::default();
        let mut answers = Vec::new();
        let mut join = |work| join(&lines, &mut answers, work);
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
    fn a_slow_line_takes_fewer() {
        let lines = Lines::default();
        let mut answers = Vec::new();
        let mut join = |work| join(&lines, &mut answers, work);
        assert!(matches!(join(0), Joined::First));
        lines.served(&key(), 1, Duration::from_secs(1));
        for work in 1..2 * MOST_AT_ONCE {
            assert!(matches!(join(work), Joined::Behind), "{work}");
        }
        assert!(matches!(join(2 * MOST_AT_ONCE), Joined::Full));
        lines.take(&key(), 1);
        assert!(matches!(join(2 * MOST_AT_ONCE), Joined::Behind));
    }

    #[test]
    fn whoever_came_first_is_in_the_first_batch() {
        let lines = Lines::default();
        let mut answers = Vec::new();
        let mut join = |work| {
            join(&lines, &mut answers, work);
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

    #[tokio::test]
    async fn whoever_waits_for_so_many_is_told_when_they_are_there() {
        let lines = Lines::default();
        let mut answers = Vec::new();
        let mut join = |work| {
            join(&lines, &mut answers, work);
        };
        join(0);
        let key = key();
        let mut three = std::pin::pin!(lines.filled(&key, 3));
        assert!(futures_util::poll!(&mut three).is_pending());
        join(1);
        assert!(futures_util::poll!(&mut three).is_pending());
        join(2);
        assert!(futures_util::poll!(&mut three).is_ready());
        // Of a line in which they are, and of one that is over, at once.
        assert!(futures_util::poll!(std::pin::pin!(lines.filled(&key, 2))).is_ready());
        lines.close(&key);
        assert!(futures_util::poll!(std::pin::pin!(lines.filled(&key, 9))).is_ready());
    }
}
