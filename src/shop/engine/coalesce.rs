//! Coalesces lookups: one call serves the lookups of many callers.
//!
//! Guarantees: at most one call per key runs at a time. Lookups that arrive during a call are in
//! the next one, so every result was true at some moment of its request. A call serves up to
//! [`MAX_PER_CALL`] lookups in FIFO order; at most [`MAX_WAITING`] wait behind it.
//!
//! A failed call fails its own lookups only. A call that panics also fails the waiting lookups, and
//! the next lookup starts a new task.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::queue::JoinResult;
use crate::shop::{Error, Shop};

/// Upper bound of the lookups that wait behind one call.
pub(super) const MAX_WAITING: usize = 4_096;

/// Upper bound of the lookups of one call: an index lookup each, some milliseconds in total.
const MAX_PER_CALL: usize = 512;

/// Coalesces the lookups of each key. Cheap to clone; clones share the queues.
#[derive(Debug)]
pub(super) struct Coalescer<K, Q, A>(Arc<Mutex<LookupQueues<K, Q, A>>>);

/// The waiting lookups. A key has a queue while a task serves it.
type LookupQueues<K, Q, A> = HashMap<K, Vec<PendingLookup<Q, A>>>;

#[derive(Debug)]
struct PendingLookup<Q, A> {
    query: Q,
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
    /// Looks up `query` together with the others of `key`. `call` returns one result per query, in
    /// their order; all callers of a key must pass the same `call`.
    /// A cancelled lookup is left out of the next call.
    pub async fn look_up<C, F>(&self, shop: &Shop, key: K, query: Q, call: C) -> Result<A, Error>
    where
        K: Send + Sync + 'static,
        Q: Send + 'static,
        A: Send + 'static,
        C: Fn(Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, Error>> + Send,
    {
        let (reply, result) = oneshot::channel();
        match self.join(&key, PendingLookup { query, reply }) {
            JoinResult::First => {
                let all = self.clone();
                shop.running.spawn_on(async move { all.serve(&key, call).await }, &shop.runtime);
            }
            JoinResult::Behind => {}
            JoinResult::Full => {
                return Err(Error::Overloaded(format!("{MAX_WAITING} ask the same already")));
            }
        }
        result
            .await
            .unwrap_or_else(|_| Err(Error::Bug("a look-up ended without an answer".to_owned())))
    }

    fn join(&self, key: &K, lookup: PendingLookup<Q, A>) -> JoinResult {
        let mut queues = self.0.lock();
        match queues.get_mut(key) {
            Some(queue) if queue.len() >= MAX_WAITING => JoinResult::Full,
            Some(queue) => {
                queue.push(lookup);
                JoinResult::Behind
            }
            None => {
                queues.insert(key.clone(), vec![lookup]);
                JoinResult::First
            }
        }
    }

    /// Takes the next lookups; `None` ends the task.
    fn take(&self, key: &K) -> Option<Vec<PendingLookup<Q, A>>> {
        let mut queues = self.0.lock();
        let queue = queues.get_mut(key)?;
        queue.retain(|lookup| !lookup.reply.is_closed());
        if queue.is_empty() {
            queues.remove(key);
            return None;
        }
        let rest = queue.split_off(queue.len().min(MAX_PER_CALL));
        Some(std::mem::replace(queue, rest))
    }

    async fn serve<C, F>(&self, key: &K, call: C)
    where
        C: Fn(Vec<Q>) -> F,
        F: Future<Output = Result<Vec<A>, Error>>,
    {
        let _clear = ClearOnPanic { coalescer: self, key };
        while let Some(lookups) = self.take(key) {
            let (queries, replies): (Vec<Q>, Vec<_>) =
                lookups.into_iter().map(|lookup| (lookup.query, lookup.reply)).unzip();
            match call(queries).await {
                Ok(results) => {
                    for (reply, result) in replies.into_iter().zip(results) {
                        let _ = reply.send(Ok(result));
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

/// Drops the waiting lookups if a call panics, so that the next lookup starts a new task.
struct ClearOnPanic<'c, K: Clone + Eq + Hash, Q, A> {
    coalescer: &'c Coalescer<K, Q, A>,
    key: &'c K,
}

impl<K: Clone + Eq + Hash, Q, A> Drop for ClearOnPanic<'_, K, Q, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.coalescer.0.lock().remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    type Doubling = Coalescer<&'static str, usize, usize>;
    type PendingResult = oneshot::Receiver<Result<usize, Error>>;

    fn join(all: &Doubling, query: usize) -> (JoinResult, PendingResult) {
        let (reply, result) = oneshot::channel();
        (all.join(&"tea", PendingLookup { query, reply }), result)
    }

    /// Serves the lookups, with one call per permit, and reports the calls.
    fn serve(all: &Doubling) -> (mpsc::UnboundedSender<bool>, mpsc::UnboundedReceiver<Vec<usize>>) {
        let (permit, permits) = mpsc::unbounded_channel();
        let (called, calls) = mpsc::unbounded_channel();
        let (all, permits) = (all.clone(), Arc::new(tokio::sync::Mutex::new(permits)));
        tokio::spawn(async move {
            let call = |queries: Vec<usize>| {
                let (permits, called) = (permits.clone(), called.clone());
                async move {
                    let _ = called.send(queries.clone());
                    match permits.lock().await.recv().await {
                        Some(true) => Ok(queries.iter().map(|n| 2 * n).collect()),
                        Some(false) => Err(Error::postgres_timeout()),
                        None => panic!("the permits are gone"),
                    }
                }
            };
            all.serve(&"tea", call).await;
        });
        (permit, calls)
    }

    #[tokio::test]
    async fn lookups_during_a_call_are_in_the_next() {
        let all = Doubling::default();
        let (joined, first) = join(&all, 0);
        assert!(matches!(joined, JoinResult::First));
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![0]));
        let mut results = Vec::new();
        for n in 1..=MAX_WAITING {
            let (joined, result) = join(&all, n);
            assert!(matches!(joined, JoinResult::Behind), "{n}");
            results.push(result);
        }
        assert!(matches!(join(&all, 0).0, JoinResult::Full));
        // A lookup whose caller has gone is left out.
        drop(results.remove(0));
        for _ in 0..=MAX_WAITING.div_ceil(MAX_PER_CALL) {
            let _ = permit.send(true);
        }
        assert!(matches!(first.await, Ok(Ok(0))));
        for (result, n) in results.into_iter().zip(2..) {
            assert!(matches!(result.await, Ok(Ok(double)) if double == 2 * n), "{n}");
        }
        let mut sizes = Vec::new();
        while let Some(queries) = calls.recv().await {
            sizes.push(queries.len());
        }
        let mut expected = vec![MAX_PER_CALL; MAX_WAITING / MAX_PER_CALL];
        expected[MAX_WAITING / MAX_PER_CALL - 1] -= 1;
        assert_eq!(sizes, expected);
        assert!(matches!(join(&all, 0).0, JoinResult::First), "the task has ended");
    }

    #[tokio::test]
    async fn failed_call_fails_its_own_lookups() {
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
    async fn next_lookup_starts_new_task_after_panic() {
        let all = Doubling::default();
        let (_, first) = join(&all, 1);
        let (permit, mut calls) = serve(&all);
        assert_eq!(calls.recv().await, Some(vec![1]));
        let (_, second) = join(&all, 2);
        drop(permit);
        assert!(first.await.is_err() && second.await.is_err(), "both were dropped");
        let (joined, third) = join(&all, 3);
        assert!(matches!(joined, JoinResult::First));
        let (permit, _calls) = serve(&all);
        let _ = permit.send(true);
        assert!(matches!(third.await, Ok(Ok(6))));
    }
}
