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
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Error;
use crate::tasks::Tasks;

pub const MAX_WAITING: usize = 4_096;

/// Upper bound of the lookups of one call, which takes some milliseconds.
const MAX_PER_CALL: usize = 512;

/// Coalesces the lookups of each key. Cheap to clone; clones share the queues.
pub struct Coalescer<K, Q, A>(Arc<SharedCoalescer<K, Q, A>>);

struct SharedCoalescer<K, Q, A> {
    tasks: Tasks,
    call: LookupFn<K, Q, A>,
    /// The queues of the tasks, each of which serves the lookups of one key.
    queues: Mutex<HashMap<K, LookupQueue<Q, A>>>,
}

type LookupFn<K, Q, A> =
    Box<dyn Fn(K, Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, Error>> + Send + Sync>;

type PendingLookup<Q, A> = (Q, oneshot::Sender<Result<A, Error>>);

type LookupQueue<Q, A> = mpsc::Sender<PendingLookup<Q, A>>;

impl<K, Q, A> Clone for Coalescer<K, Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, Q, A> fmt::Debug for Coalescer<K, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").finish_non_exhaustive()
    }
}

impl<K, Q, A> Coalescer<K, Q, A>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    Q: Send + 'static,
    A: Send + 'static,
{
    /// `call` looks up the queries of a key. It returns one result per query, in their order.
    pub fn new<F>(tasks: &Tasks, call: impl Fn(K, Vec<Q>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Vec<A>, Error>> + Send + 'static,
    {
        Self(Arc::new(SharedCoalescer {
            tasks: tasks.clone(),
            call: Box::new(move |key, queries| call(key, queries).boxed()),
            queues: Mutex::default(),
        }))
    }

    /// Looks up `query` together with the others of `key`. A cancelled lookup is left out of the
    /// next call.
    pub async fn look_up(&self, key: K, query: Q) -> Result<A, Error> {
        let (reply, result) = oneshot::channel();
        if !self.enqueue(key, (query, reply)) {
            let cause = format!("{MAX_WAITING} lookups of the same kind wait");
            return Err(Error::Overloaded(cause));
        }
        result.await.map_err(|_| Error::Bug("the task of a lookup panicked".to_owned()))?
    }

    fn enqueue(&self, key: K, lookup: PendingLookup<Q, A>) -> bool {
        let mut queues = self.0.queues.lock();
        let lookup = match queues.get(&key) {
            None => lookup,
            Some(queue) => match queue.try_send(lookup) {
                Ok(()) => return true,
                Err(TrySendError::Full(_)) => return false,
                // The task panicked.
                Err(TrySendError::Closed(lookup)) => lookup,
            },
        };

        let (sender, queue) = mpsc::channel(MAX_WAITING);
        let is_sent = sender.try_send(lookup).is_ok();
        queues.insert(key.clone(), sender);

        self.0.tasks.spawn(self.clone().serve(key, queue));
        is_sent
    }

    async fn serve(self, key: K, mut queue: mpsc::Receiver<PendingLookup<Q, A>>) {
        loop {
            let mut lookups = Vec::new();
            queue.recv_many(&mut lookups, MAX_PER_CALL).await;
            // The callers of the others do not wait any more.
            lookups.retain(|(_, reply)| !reply.is_closed());
            let (queries, replies): (Vec<Q>, Vec<_>) = lookups.into_iter().unzip();

            if !queries.is_empty() {
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

            // Under the lock of `enqueue`: no lookup joins between the check and the removal.
            let mut queues = self.0.queues.lock();
            if queue.is_empty() {
                queues.remove(&key);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    type Doubling = Coalescer<&'static str, usize, usize>;
    type Lookup = JoinHandle<Result<usize, Error>>;

    /// The behaviour of a call.
    #[derive(Clone, Copy)]
    enum Permit {
        Succeed,
        Fail,
        Panic,
    }

    /// Starts a lookup that is queued when this returns.
    async fn look_up(all: &Doubling, query: usize) -> Lookup {
        let all = all.clone();
        let lookup = tokio::spawn(async move { all.look_up("tea", query).await });
        tokio::task::yield_now().await;
        lookup
    }

    /// Makes one call per permit, and reports the calls.
    fn doubling() -> (Doubling, mpsc::UnboundedSender<Permit>, mpsc::UnboundedReceiver<Vec<usize>>)
    {
        let (permit, permits) = mpsc::unbounded_channel();
        let (called, calls) = mpsc::unbounded_channel();
        let permits = Arc::new(tokio::sync::Mutex::new(permits));
        let all = Doubling::new(&Tasks::default(), move |_, queries: Vec<usize>| {
            let (permits, called) = (permits.clone(), called.clone());
            async move {
                let _ = called.send(queries.clone());
                match permits.lock().await.recv().await {
                    Some(Permit::Succeed) => Ok(queries.iter().map(|n| 2 * n).collect()),
                    Some(Permit::Fail) => Err(Error::GivenUp("a call fails")),
                    Some(Permit::Panic) | None => panic!("a call panics"),
                }
            }
        });
        (all, permit, calls)
    }

    #[tokio::test]
    async fn lookups_during_a_call_are_in_the_next() {
        let (all, permit, mut calls) = doubling();
        let first = look_up(&all, 0).await;
        assert_eq!(calls.recv().await, Some(vec![0]));
        let mut lookups = Vec::new();
        for n in 1..=MAX_WAITING {
            lookups.push(look_up(&all, n).await);
        }
        let refused = look_up(&all, 0).await.await.unwrap();
        assert!(matches!(refused, Err(Error::Overloaded(_))));
        // A lookup whose caller has gone is left out.
        lookups.remove(0).abort();
        for _ in 0..=MAX_WAITING.div_ceil(MAX_PER_CALL) {
            let _ = permit.send(Permit::Succeed);
        }
        assert_eq!(first.await.unwrap().unwrap(), 0);
        for (lookup, n) in lookups.into_iter().zip(2..) {
            assert_eq!(lookup.await.unwrap().unwrap(), 2 * n);
        }
        let mut sizes = Vec::new();
        while let Ok(queries) = calls.try_recv() {
            sizes.push(queries.len());
        }
        let mut expected = vec![MAX_PER_CALL; MAX_WAITING / MAX_PER_CALL];
        expected[0] -= 1;
        assert_eq!(sizes, expected);
        assert!(all.0.queues.lock().is_empty(), "the task has ended");
    }

    #[tokio::test]
    async fn failed_call_fails_its_own_lookups() {
        let (all, permit, mut calls) = doubling();
        let first = look_up(&all, 1).await;
        assert_eq!(calls.recv().await, Some(vec![1]));
        let second = look_up(&all, 2).await;
        let _ = (permit.send(Permit::Fail), permit.send(Permit::Succeed));
        assert!(first.await.unwrap().is_err());
        assert_eq!(second.await.unwrap().unwrap(), 4);
    }

    #[tokio::test]
    async fn next_lookup_starts_new_task_after_panic() {
        let (all, permit, mut calls) = doubling();
        let first = look_up(&all, 1).await;
        assert_eq!(calls.recv().await, Some(vec![1]));
        let second = look_up(&all, 2).await;
        let _ = permit.send(Permit::Panic);
        for lookup in [first, second] {
            assert!(matches!(lookup.await.unwrap(), Err(Error::Bug(_))));
        }
        let third = look_up(&all, 3).await;
        let _ = permit.send(Permit::Succeed);
        assert_eq!(third.await.unwrap().unwrap(), 6);
    }
}
