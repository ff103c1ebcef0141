//! Many who ask at the same time are answered by one call.
//!
//! Guarantees: of one key, one call is under way at a time; whoever comes meanwhile is in the next
//! one, so every answer was true at a moment of its request. A call answers [`MOST_AT_ONCE`], in
//! the order in which they came; and no more than [`MOST_WAITING`] wait behind it.
//!
//! Does not guarantee how long that takes: it is as long as the calls are. When a call fails, all
//! whom it was to answer are told so; when it panics, all who wait, and whoever comes next begins
//! anew.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::MOST_WAITING;
use super::line::Joined;
use crate::shop::{Error, Shop};

/// One call answers so many at most: a look into the index for each, some milliseconds.
const MOST_AT_ONCE: usize = 512;

/// Who asks, by key. Cheap to clone.
#[derive(Debug)]
pub(super) struct Coalescer<K, Q, A>(Arc<Mutex<Lines<K, Q, A>>>);

/// A key has a line while somebody serves it.
type Lines<K, Q, A> = HashMap<K, Vec<Asking<Q, A>>>;

#[derive(Debug)]
struct Asking<Q, A> {
    question: Q,
    reply: oneshot::Sender<Result<A, Error>>,
}

impl<K, Q, A> Clone for Coalescer<K, Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, Q, A> Default for Coalescer<K, Q, A> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash, Q, A> Coalescer<K, Q, A> {
    /// Asks together with all who ask for that key at the same time. `call` has an answer to each
    /// of several questions, in their order; whose call it is that is made nobody knows, so all who
    /// ask for one key bring the same.
    ///
    /// # Errors
    /// The call's; [`Error::Overloaded`] when too many wait for one.
    ///
    /// # Cancel safety
    /// Safe: whoever has gone is left out of the next call.
    pub async fn ask<C, Called>(
        &self,
        shop: &Shop,
        key: K,
        question: Q,
        call: C,
    ) -> Result<A, Error>
    where
        K: Send + Sync + 'static,
        Q: Send + 'static,
        A: Send + 'static,
        C: Fn(Vec<Q>) -> Called + Send + Sync + 'static,
        Called: Future<Output = Result<Vec<A>, Error>> + Send,
    {
        let (reply, answer) = oneshot::channel();
        match self.join(&key, Asking { question, reply }) {
            Joined::First => {
                let all = self.clone();
                shop.running.spawn_on(async move { all.serve(&key, call).await }, &shop.runtime);
            }
            Joined::Behind => {}
            Joined::Full => {
                return Err(Error::Overloaded(format!("{MOST_WAITING} ask the same already")));
            }
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Bug("a look ended without an answer".to_owned())))
    }

    fn all(&self) -> MutexGuard<'_, Lines<K, Q, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, key: &K, asking: Asking<Q, A>) -> Joined {
        let mut all = self.all();
        match all.get_mut(key) {
            Some(line) if line.len() >= MOST_WAITING => Joined::Full,
            Some(line) => {
                line.push(asking);
                Joined::Behind
            }
            None => {
                all.insert(key.clone(), vec![asking]);
                Joined::First
            }
        }
    }

    /// The next who wait; none when nobody does, and then nobody serves any more.
    fn take(&self, key: &K) -> Option<Vec<Asking<Q, A>>> {
        let mut all = self.all();
        let line = all.get_mut(key)?;
        line.retain(|asking| !asking.reply.is_closed());
        if line.is_empty() {
            all.remove(key);
            return None;
        }
        let rest = line.split_off(line.len().min(MOST_AT_ONCE));
        Some(std::mem::replace(line, rest))
    }

    async fn serve<C, Called>(&self, key: &K, call: C)
    where
        C: Fn(Vec<Q>) -> Called,
        Called: Future<Output = Result<Vec<A>, Error>>,
    {
        let _closing = Closing { of: self, key };
        while let Some(asking) = self.take(key) {
            let (questions, replies): (Vec<Q>, Vec<_>) =
                asking.into_iter().map(|asking| (asking.question, asking.reply)).unzip();
            match call(questions).await {
                Ok(answers) => {
                    for (reply, answer) in replies.into_iter().zip(answers) {
                        let _ = reply.send(Ok(answer));
                    }
                }
                Err(error) => {
                    for reply in replies {
                        let _ = reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// Lets whoever comes next begin anew when a call ends by a panic.
struct Closing<'c, K: Clone + Eq + Hash, Q, A> {
    of: &'c Coalescer<K, Q, A>,
    key: &'c K,
}

impl<K: Clone + Eq + Hash, Q, A> Drop for Closing<'_, K, Q, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.of.all().remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    type Doubling = Coalescer<&'static str, usize, usize>;
    type Answer = oneshot::Receiver<Result<usize, Error>>;

    fn join(all: &Doubling, question: usize) -> (Joined, Answer) {
        let (reply, answer) = oneshot::channel();
        (all.join(&"tea", Asking { question, reply }), answer)
    }

    /// Serves until nobody asks, one call for each permit; the calls that were made.
    fn serve(all: &Doubling) -> (mpsc::UnboundedSender<bool>, mpsc::UnboundedReceiver<Vec<usize>>) {
        let (permit, permits) = mpsc::unbounded_channel();
        let (called, calls) = mpsc::unbounded_channel();
        let (all, permits) = (all.clone(), Arc::new(tokio::sync::Mutex::new(permits)));
        tokio::spawn(async move {
            let call = |asked: Vec<usize>| {
                let (permits, called) = (permits.clone(), called.clone());
                async move {
                    let _ = called.send(asked.clone());
                    match permits.lock().await.recv().await {
                        Some(true) => Ok(asked.iter().map(|n| 2 * n).collect()),
                        Some(false) => Err(Error::silence()),
                        None => panic!("as it is wanted"),
                    }
                }
            };
            all.serve(&"tea", call).await;
        });
        (permit, calls)
    }

    #[tokio::test]
    async fn whoever_comes_during_a_call_is_answered_by_the_next_ones() {
        let all = Doubling::default();
        let (joined, first) = join(&all, 0);
        assert!(matches!(joined, Joined::First));
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![0]));
        let mut answers = Vec::new();
        for n in 1..=MOST_WAITING {
            let (joined, answer) = join(&all, n);
            assert!(matches!(joined, Joined::Behind), "{n}");
            answers.push(answer);
        }
        assert!(matches!(join(&all, 0).0, Joined::Full));
        // Who has gone is not asked for.
        drop(answers.remove(0));
        for _ in 0..=MOST_WAITING.div_ceil(MOST_AT_ONCE) {
            let _ = permit.send(true);
        }
        assert!(matches!(first.await, Ok(Ok(0))));
        for (answer, n) in answers.into_iter().zip(2..) {
            assert!(matches!(answer.await, Ok(Ok(answer)) if answer == 2 * n), "{n}");
        }
        let mut sizes = Vec::new();
        while let Some(asked) = calls.recv().await {
            sizes.push(asked.len());
        }
        let mut expected = vec![MOST_AT_ONCE; MOST_WAITING / MOST_AT_ONCE];
        expected[MOST_WAITING / MOST_AT_ONCE - 1] -= 1;
        assert_eq!(sizes, expected);
        assert!(matches!(join(&all, 0).0, Joined::First), "nobody serves any more");
    }

    #[tokio::test]
    async fn a_call_that_fails_fails_for_those_whom_it_was_to_answer() {
        let all = Doubling::default();
        let (_, first) = join(&all, 1);
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![1]));
        let (_, second) = join(&all, 2);
        let _ = (permit.send(false), permit.send(true));
        assert!(matches!(first.await, Ok(Err(Error::Unavailable { .. }))));
        assert!(matches!(second.await, Ok(Ok(4))));
    }

    #[tokio::test]
    async fn after_a_panic_whoever_comes_next_begins_anew() {
        let all = Doubling::default();
        let (_, first) = join(&all, 1);
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![1]));
        let (_, second) = join(&all, 2);
        drop(permit);
        assert!(first.await.is_err() && second.await.is_err(), "nobody is left to wait");
        let (joined, third) = join(&all, 3);
        assert!(matches!(joined, Joined::First));
        let (permit, _calls) = serve(&all);
        let _ = permit.send(true);
        assert!(matches!(third.await, Ok(Ok(6))));
    }
}
