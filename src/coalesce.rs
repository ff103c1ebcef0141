//! Coalesces lookups: one call serves the lookups of many callers.
//!
//! Guarantees: at most one call per key runs at a time. Lookups that arrive during a call are in
//! the next one, so every result was true at some moment of its request. A call serves up to
//! [`MAX_PER_CALL`] lookups in FIFO order; at most [`MAX_WAITING`] wait behind it.
//!
//! A failed call fails its own lookups only. A call that panics also fails the waiting lookups, and
//! the next lookup starts a new task.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::tasks::Tasks;

/// Upper bound of the lookups that wait behind one call.
pub const MAX_WAITING: usize = 4_096;

/// Upper bound of the lookups of one call, which takes some milliseconds.
const MAX_PER_CALL: usize = 512;

/// Coalesces the lookups of each key. Cheap to clone; clones share the queues.
pub struct Coalescer<K, Q, A, E>(Arc<SharedCoalescer<K, Q, A, E>>);

struct SharedCoalescer<K, Q, A, E> {
    tasks: Tasks,
    call: Call<K, Q, A, E>,
    queues: Mutex<LookupQueues<K, Q, A, E>>,
}

/// The waiting lookups. A key has a queue while a task serves it.
type LookupQueues<K, Q, A, E> = HashMap<K, Vec<PendingLookup<Q, A, E>>>;

/// Looks up the queries of a key. Returns one result per query, in their order.
type Call<K, Q, A, E> =
    Box<dyn Fn(K, Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, E>> + Send + Sync>;

struct PendingLookup<Q, A, E> {
    query: Q,
    reply: oneshot::Sender<Result<A, E>>,
}

/// The reason why a lookup was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoalesceError {
    /// [`MAX_WAITING`] others wait already.
    QueueIsFull,
    /// The task that makes the calls panicked.
    TaskPanicked,
}

#[derive(Debug)]
enum LookupPosition {
    /// The caller starts the task.
    First,
    Behind,
    Full,
}

impl<K, Q, A, E> Clone for Coalescer<K, Q, A, E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, Q, A, E> fmt::Debug for Coalescer<K, Q, A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").finish_non_exhaustive()
    }
}

impl<K, Q, A, E> Coalescer<K, Q, A, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    Q: Send + 'static,
    A: Send + 'static,
    E: Clone + From<CoalesceError> + Send + 'static,
{
    /// `call` looks up the queries of a key. It returns one result per query, in their order.
    pub fn new<F>(tasks: &Tasks, call: impl Fn(K, Vec<Q>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Vec<A>, E>> + Send + 'static,
    {
        Self(Arc::new(SharedCoalescer {
            tasks: tasks.clone(),
            call: Box::new(move |key, queries| call(key, queries).boxed()),
            queues: Mutex::default(),
        }))
    }

    /// Looks up `query` together with the others of `key`. A cancelled lookup is left out of the
    /// next call.
    pub async fn look_up(&self, key: K, query: Q) -> Result<A, E> {
        let (reply, result) = oneshot::channel();
        match self.join(&key, PendingLookup { query, reply }) {
            LookupPosition::First => {
                self.0.tasks.spawn(self.clone().serve(key));
            }
            LookupPosition::Behind => {}
            LookupPosition::Full => return Err(CoalesceError::QueueIsFull.into()),
        }
        result.await.unwrap_or_else(|_| Err(CoalesceError::TaskPanicked.into()))
    }

    fn join(&self, key: &K, lookup: PendingLookup<Q, A, E>) -> LookupPosition {
        let mut queues = self.0.queues.lock();
        match queues.get_mut(key) {
            Some(queue) if queue.len() >= MAX_WAITING => LookupPosition::Full,
            Some(queue) => {
                queue.push(lookup);
                LookupPosition::Behind
            }
            None => {
                queues.insert(key.clone(), vec![lookup]);
                LookupPosition::First
            }
        }
    }

    /// Takes the next lookups; `None` ends the task.
    fn take(&self, key: &K) -> Option<Vec<PendingLookup<Q, A, E>>> {
        let mut queues = self.0.queues.lock();
        let queue = queues.get_mut(key)?;
        queue.retain(|lookup| !lookup.reply.is_closed());
        if queue.is_empty() {
            queues.remove(key);
            return None;
        }
        let rest = queue.split_off(queue.len().min(MAX_PER_CALL));
        Some(std::mem::replace(queue, rest))
    }

    async fn serve(self, key: K) {
        let _clear = ClearOnPanic { coalescer: &self, key: &key };
        while let Some(lookups) = self.take(&key) {
            let (queries, replies): (Vec<Q>, Vec<_>) =
                lookups.into_iter().map(|lookup| (lookup.query, lookup.reply)).unzip();
            match (self.0.call)(key.clone(), queries).await {
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
struct ClearOnPanic<'c, K: Eq + Hash, Q, A, E> {
    coalescer: &'c Coalescer<K, Q, A, E>,
    key: &'c K,
}

impl<K: Eq + Hash, Q, A, E> Drop for ClearOnPanic<'_, K, Q, A, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.coalescer.0.queues.lock().remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    type Doubling = Coalescer<&'static str, usize, usize, CallError>;
    type PendingResult = oneshot::Receiver<Result<usize, CallError>>;

    #[derive(Debug, Clone)]
    struct CallError;

    impl From<CoalesceError> for CallError {
        fn from(_: CoalesceError) -> Self {
            CallError
        }
    }

    /// What a call does.
    #[derive(Clone, Copy)]
    enum Permit {
        Succeed,
        Fail,
        Panic,
    }

    fn join(all: &Doubling, query: usize) -> (LookupPosition, PendingResult) {
        let (reply, result) = oneshot::channel();
        (all.join(&"tea", PendingLookup { query, reply }), result)
    }

    /// Makes one call per permit, and reports the calls.
    fn doubling() -> (Doubling, mpsc::UnboundedSender<Permit>, mpsc::UnboundedReceiver<Vec<usize>>)
    {
        let (permit, permits) = mpsc::unbounded_channel();
        let (called, calls) = mpsc::unbounded_channel();
        let permits = Arc::new(tokio::sync::Mutex::new(permits));
        let all = Doubling::new(&Tasks::on_current_runtime(), move |_, queries: Vec<usize>| {
            let (permits, called) = (permits.clone(), called.clone());
            async move {
                let _ = called.send(queries.clone());
                match permits.lock().await.recv().await {
                    Some(Permit::Succeed) => Ok(queries.iter().map(|n| 2 * n).collect()),
                    Some(Permit::Fail) => Err(CallError),
                    Some(Permit::Panic) | None => panic!("a call panics"),
                }
            }
        });
        (all, permit, calls)
    }

    #[tokio::test]
    async fn lookups_during_a_call_are_in_the_next() {
        let (all, permit, mut calls) = doubling();
        let (joined, first) = join(&all, 0);
        assert!(matches!(joined, LookupPosition::First));
        let task = tokio::spawn(all.clone().serve("tea"));
        assert_eq!(calls.recv().await, Some(vec![0]));
        let mut results = Vec::new();
        for n in 1..=MAX_WAITING {
            let (joined, result) = join(&all, n);
            assert!(matches!(joined, LookupPosition::Behind), "{n}");
            results.push(result);
        }
        assert!(matches!(join(&all, 0).0, LookupPosition::Full));
        // A lookup whose caller has gone is left out.
        drop(results.remove(0));
        for _ in 0..=MAX_WAITING.div_ceil(MAX_PER_CALL) {
            let _ = permit.send(Permit::Succeed);
        }
        assert!(matches!(first.await, Ok(Ok(0))));
        for (result, n) in results.into_iter().zip(2..) {
            assert!(matches!(result.await, Ok(Ok(double)) if double == 2 * n), "{n}");
        }
        assert!(task.await.is_ok());
        let mut sizes = Vec::new();
        while let Ok(queries) = calls.try_recv() {
            sizes.push(queries.len());
        }
        let mut expected = vec![MAX_PER_CALL; MAX_WAITING / MAX_PER_CALL];
        expected[MAX_WAITING / MAX_PER_CALL - 1] -= 1;
        assert_eq!(sizes, expected);
        assert!(matches!(join(&all, 0).0, LookupPosition::First), "the task has ended");
    }

    #[tokio::test]
    async fn failed_call_fails_its_own_lookups() {
        let (all, permit, mut calls) = doubling();
        let (_, first) = join(&all, 1);
        tokio::spawn(all.clone().serve("tea"));
        assert_eq!(calls.recv().await, Some(vec![1]));
        let (_, second) = join(&all, 2);
        let _ = (permit.send(Permit::Fail), permit.send(Permit::Succeed));
        assert!(matches!(first.await, Ok(Err(CallError))));
        assert!(matches!(second.await, Ok(Ok(4))));
    }

    #[tokio::test]
    async fn next_lookup_starts_new_task_after_panic() {
        let (all, permit, mut calls) = doubling();
        let (_, first) = join(&all, 1);
        tokio::spawn(all.clone().serve("tea"));
        assert_eq!(calls.recv().await, Some(vec![1]));
        let (_, second) = join(&all, 2);
        let _ = permit.send(Permit::Panic);
        assert!(first.await.is_err() && second.await.is_err(), "both were dropped");
        let (joined, third) = join(&all, 3);
        assert!(matches!(joined, LookupPosition::First));
        tokio::spawn(all.clone().serve("tea"));
        let _ = permit.send(Permit::Succeed);
        assert!(matches!(third.await, Ok(Ok(6))));
    }
}
