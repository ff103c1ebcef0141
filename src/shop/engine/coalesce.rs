//! Coalesces lookups: one call answers the questions of many callers.
//!
//! Guarantees: at most one call per key runs at a time. Questions that arrive during a call are in
//! the next one, so every answer was true at some moment of its request. A call answers up to
//! [`MAX_PER_CALL`] questions in FIFO order; at most [`MAX_WAITING`] wait behind it.
//!
//! A failed call fails its own questions only. A call that panics also fails the waiting questions,
//! and the next question starts a new task.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::queue::Joined;
use crate::shop::{Error, Shop};

/// Upper bound of the questions that wait behind one call.
pub(super) const MAX_WAITING: usize = 4_096;

/// Upper bound of the questions of one call: an index lookup each, some milliseconds in total.
const MAX_PER_CALL: usize = 512;

/// Coalesces the questions of each key. Cheap to clone; clones share the queues.
#[derive(Debug)]
pub(super) struct Coalescer<K, Q, A>(Arc<Mutex<Lines<K, Q, A>>>);

/// The waiting questions. A key has a queue while a task serves it.
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
    /// Asks a question together with the others of `key`. `call` returns one answer per question,
    /// in their order; all callers of a key must pass the same `call`.
    ///
    /// # Errors
    /// The error of the call; [`Error::Overloaded`] if [`MAX_WAITING`] questions wait for `key`;
    /// [`Error::Bug`] if the call panics.
    ///
    /// # Cancel safety
    /// Safe: the next call leaves the question out.
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
                return Err(Error::Overloaded(format!("{MAX_WAITING} ask the same already")));
            }
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Bug("a look-up ended without an answer".to_owned())))
    }

    fn join(&self, key: &K, asking: Asking<Q, A>) -> Joined {
        let mut all = self.0.lock();
        match all.get_mut(key) {
            Some(line) if line.len() >= MAX_WAITING => Joined::Full,
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

    /// Takes the next questions; `None` ends the task.
    fn take(&self, key: &K) -> Option<Vec<Asking<Q, A>>> {
        let mut all = self.0.lock();
        let line = all.get_mut(key)?;
        line.retain(|asking| !asking.reply.is_closed());
        if line.is_empty() {
            all.remove(key);
            return None;
        }
        let rest = line.split_off(line.len().min(MAX_PER_CALL));
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

/// Drops the waiting questions if a call panics, so that the next question starts a new task.
struct Closing<'c, K: Clone + Eq + Hash, Q, A> {
    of: &'c Coalescer<K, Q, A>,
    key: &'c K,
}

impl<K: Clone + Eq + Hash, Q, A> Drop for Closing<'_, K, Q, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.of.0.lock().remove(self.key);
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

    /// Serves the questions, with one call per permit, and reports the calls.
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
                        Some(false) => Err(Error::silent_postgres()),
                        None => panic!("as it is wanted"),
                    }
                }
            };
            all.serve(&"tea", call).await;
        });
        (permit, calls)
    }

    #[tokio::test]
    async fn questions_during_call_join_the_next() {
        let all = Doubling::default();
        let (joined, first) = join(&all, 0);
        assert!(matches!(joined, Joined::First));
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![0]));
        let mut answers = Vec::new();
        for n in 1..=MAX_WAITING {
            let (joined, answer) = join(&all, n);
            assert!(matches!(joined, Joined::Behind), "{n}");
            answers.push(answer);
        }
        assert!(matches!(join(&all, 0).0, Joined::Full));
        // A question whose caller has gone is left out.
        drop(answers.remove(0));
        for _ in 0..=MAX_WAITING.div_ceil(MAX_PER_CALL) {
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
        let mut expected = vec![MAX_PER_CALL; MAX_WAITING / MAX_PER_CALL];
        expected[MAX_WAITING / MAX_PER_CALL - 1] -= 1;
        assert_eq!(sizes, expected);
        assert!(matches!(join(&all, 0).0, Joined::First), "the task has ended");
    }

    #[tokio::test]
    async fn failed_call_fails_its_own_questions() {
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
    async fn next_question_starts_anew_after_panic() {
        let all = Doubling::default();
        let (_, first) = join(&all, 1);
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![1]));
        let (_, second) = join(&all, 2);
        drop(permit);
        assert!(first.await.is_err() && second.await.is_err(), "both were dropped");
        let (joined, third) = join(&all, 3);
        assert!(matches!(joined, Joined::First));
        let (permit, _calls) = serve(&all);
        let _ = permit.send(true);
        assert!(matches!(third.await, Ok(Ok(6))));
    }
}
