//! The lock on a majority of nodes independent Redis: nodes that are down, slow, or lose their
//! data.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks, Redis, Released, Settings,
    Wait,
};
use rustix::process::Signal;

use crate::history::Rendezvous;
use crate::server::{Server, TTL, ping, until};

struct FiveNodes(Vec<Server>);

impl FiveNodes {
    fn start() -> Self {
        Self((0..5).map(|_| Server::start()).collect())
    }

    fn process(&self) -> Locks {
        self.process_of(TTL)
    }

    fn process_of(&self, ttl: Duration) -> Locks {
        let nodes = self.0.iter().map(|node| Redis::open(node.url()).unwrap()).collect();
        let settings = Settings::default().with_ttl(ttl);
        // The first node is also the Redis of the other kinds, which are not used here.
        Locks::new(Redis::open(self.0[0].url()).unwrap(), settings).unwrap().with_quorum(nodes)
    }

    fn granting_nodes(&self) -> usize {
        let nodes = self.0.iter();
        nodes.filter(|node| node.query::<i64>("EXISTS holdfast:lock:{a}") == 1).count()
    }
}

async fn acquire(locks: &Locks, wait: Wait) -> Result<AcquireOutcome, holdfast_lock::Error> {
    let keys = [LockKey::new("{a}").unwrap()];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    locks
        .acquire(
            AcquireRequest::new(LockKind::Quorum, &keys).with_wait(wait).with_deadline(deadline),
        )
        .await
}

async fn lock(locks: &Locks) -> Guards {
    match acquire(locks, Wait::Retry).await.unwrap() {
        AcquireOutcome::Acquired(guards) => guards,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_lock_excludes_without_a_fence() {
    let nodes = FiveNodes::start();
    let (here, there) = (nodes.process(), nodes.process());
    let held = lock(&here).await;
    assert_eq!(held.fence(&LockKey::new("{a}").unwrap()), None);
    assert!(matches!(acquire(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
    lock(&there).await.release().await;
    until("no node keeps it", async || nodes.granting_nodes() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_survives_two_nodes_down_not_three() {
    let mut nodes = FiveNodes::start();
    let (process, there) = (nodes.process(), nodes.process());
    nodes.0[0].kill();
    nodes.0[3].kill();
    let held = lock(&process).await;
    assert!(matches!(acquire(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
    nodes.0[4].kill();
    let result = acquire(&process, Wait::Try).await;
    assert!(matches!(result, Err(holdfast_lock::Error::Unavailable(_))), "{result:?}");
    // The grants of two nodes were released.
    until("no node keeps it", async || {
        [1, 2].iter().all(|node: &usize| nodes.0[*node].keys_left().is_empty())
    })
    .await;
}

/// redsync #140: *it waits for slow nodes.*
#[tokio::test(flavor = "multi_thread")]
async fn slow_nodes_do_not_delay_acquire() {
    let nodes = FiveNodes::start();
    let (process, there) = (nodes.process(), nodes.process());
    lock(&process).await.release().await;
    for node in &nodes.0[..2] {
        node.signal(Signal::STOP);
    }
    let stopped = Redis::open(nodes.0[0].url()).unwrap();
    let held = tokio::select! {
        biased;
        held = lock(&process) => held,
        _ = ping(&stopped) => panic!("it takes as long as a node that does not respond"),
    };
    assert!(matches!(acquire(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
    for node in &nodes.0[..2] {
        node.signal(Signal::CONT);
    }
    until("the slow nodes release it", async || nodes.granting_nodes() == 0).await;
}

/// The thread that counts the votes is blocked until its lease has ended.
#[tokio::test(flavor = "multi_thread")]
async fn majority_after_the_deadline_is_none() {
    let nodes = FiveNodes::start();
    let process = nodes.process();
    lock(&process).await.release().await;
    let mut acquiring = pin!(acquire(&process, Wait::Try));
    nodes.0[..3].iter().for_each(|node| node.signal(Signal::STOP));
    assert!(acquiring.as_mut().now_or_never().is_none());
    nodes.0[..3].iter().for_each(|node| node.signal(Signal::CONT));
    until("a majority has granted it", async || nodes.granting_nodes() >= 3).await;
    #[expect(clippy::disallowed_methods, reason = "stops the thread that counts")]
    std::thread::sleep(TTL);
    let outcome = acquiring.await;
    assert!(!matches!(outcome, Ok(AcquireOutcome::Acquired(_))), "{outcome:?}");
}

/// Some attempts get no majority after a waiter has waited for longer than the limit of an outage.
#[tokio::test(flavor = "multi_thread")]
async fn short_stop_while_waiting_is_no_outage() {
    let nodes = FiveNodes::start();
    let (here, there) = (nodes.process(), nodes.process());
    let held = lock(&here).await;
    let waiter = tokio::spawn(async move { acquire(&there, Wait::Retry).await });
    let passes = async |time: Duration| {
        let started = Instant::now();
        until("the time passes", async || started.elapsed() > time).await;
    };
    passes(Duration::from_secs(2)).await;
    for node in &nodes.0[..3] {
        node.signal(Signal::STOP);
    }
    passes(Duration::from_millis(300)).await;
    for node in &nodes.0[..3] {
        node.signal(Signal::CONT);
    }
    held.release().await;
    let outcome = waiter.await.unwrap();
    assert!(matches!(outcome, Ok(AcquireOutcome::Acquired(_))), "{outcome:?}");
}

/// rslock: *a failed extension unlocks every node.* And redsync #153: there is one at all.
#[tokio::test(flavor = "multi_thread")]
async fn majority_renews_the_lease() {
    let mut nodes = FiveNodes::start();
    let (here, there) = (nodes.process_of(TTL * 8), nodes.process());
    let held = lock(&here).await;
    nodes.0[1].kill();
    nodes.0[2].kill();
    let (mut renewals, mut last) = (0, i64::MAX);
    until("it is renewed twice", async || {
        let left: i64 = nodes.0[0].query("PTTL holdfast:lock:{a}");
        renewals += i32::from(left > last);
        last = left;
        renewals == 2
    })
    .await;
    assert!(matches!(acquire(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
}

/// node-redlock #369: *keys of a minority block each other, and no client wins.*
#[tokio::test(flavor = "multi_thread")]
async fn split_votes_are_released() {
    let nodes = FiveNodes::start();
    let processes: Vec<Locks> = (0..4).map(|_| nodes.process()).collect();
    let mut clients = tokio::task::JoinSet::new();
    let rendezvous = Arc::new(Rendezvous::default());
    for process in processes {
        let rendezvous = rendezvous.clone();
        clients.spawn(async move {
            for _ in 0..5 {
                let held = lock(&process).await;
                assert!(!rendezvous.overlaps(Duration::from_millis(20)).await, "two hold it");
                assert_eq!(held.release().await, Released::Held);
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    until("no node keeps it", async || nodes.granting_nodes() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_lost_by_all_nodes_is_reported() {
    let nodes = FiveNodes::start();
    let (process, there) = (nodes.process(), nodes.process());
    let held = lock(&process).await;
    assert!(matches!(acquire(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    // All of them: a renewal in between takes it again on two at most, a straggler likewise.
    for node in &nodes.0 {
        let _: String = node.query("FLUSHALL");
    }
    assert_eq!(held.release().await, Released::Lost);
}
