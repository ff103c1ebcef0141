//! The lock on a majority of five independent Redis: nodes down, nodes slow, nodes that forget.

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

struct Five(Vec<Server>);

impl Five {
    fn start() -> Self {
        Self((0..5).map(|_| Server::start()).collect())
    }

    fn process(&self) -> Locks {
        self.process_of(TTL)
    }

    fn process_of(&self, ttl: Duration) -> Locks {
        let nodes = self.0.iter().map(|node| Redis::open(node.url()).unwrap()).collect();
        let settings = Settings { ttl, ..Settings::default() };
        // The shop's own Redis has no part in it.
        Locks::new(Redis::open(self.0[0].url()).unwrap(), settings).unwrap().with_quorum(nodes)
    }

    fn nodes_that_have_it(&self) -> usize {
        let nodes = self.0.iter();
        nodes.filter(|node| node.ask::<i64>("EXISTS holdfast:lock:{a}") == 1).count()
    }
}

async fn ask(locks: &Locks, wait: Wait) -> Result<AcquireOutcome, holdfast_lock::Error> {
    let keys = [LockKey::new("{a}").unwrap()];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    locks
        .acquire(AcquireRequest { kind: LockKind::Quorum, wait, ttl: None, deadline, keys: &keys })
        .await
}

async fn take(locks: &Locks) -> Guards {
    match ask(locks, Wait::Retry).await.unwrap() {
        AcquireOutcome::Acquired(guards) => guards,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_lock_excludes_without_a_fence() {
    let five = Five::start();
    let (here, there) = (five.process(), five.process());
    let held = take(&here).await;
    assert_eq!(held.fence(&LockKey::new("{a}").unwrap()), None);
    assert!(matches!(ask(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
    take(&there).await.release().await;
    until("no node keeps it", async || five.nodes_that_have_it() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_survives_two_nodes_down_not_three() {
    let mut five = Five::start();
    let (process, there) = (five.process(), five.process());
    five.0[0].kill();
    five.0[3].kill();
    let started = Instant::now();
    let held = take(&process).await;
    assert!(matches!(ask(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    five.0[4].kill();
    let refused = ask(&process, Wait::Try).await;
    assert!(matches!(refused, Err(holdfast_lock::Error::Unavailable(_))), "{refused:?}");
    // What two nodes granted was given back.
    until("no node keeps it", async || {
        [1, 2].iter().all(|node: &usize| five.0[*node].keys_left().is_empty())
    })
    .await;
}

/// redsync #140: *it waits for slow nodes.*
#[tokio::test(flavor = "multi_thread")]
async fn slow_nodes_do_not_delay_acquire() {
    let five = Five::start();
    let (process, there) = (five.process(), five.process());
    take(&process).await.release().await;
    for node in &five.0[..2] {
        node.signal(Signal::STOP);
    }
    let stopped = Redis::open(five.0[0].url()).unwrap();
    let held = tokio::select! {
        biased;
        held = take(&process) => held,
        _ = ping(&stopped) => panic!("it takes as long as a node that does not respond"),
    };
    assert!(matches!(ask(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
    for node in &five.0[..2] {
        node.signal(Signal::CONT);
    }
    until("the stragglers let go", async || five.nodes_that_have_it() == 0).await;
}

/// The thread that counts the votes does not run until its lease has ended.
#[tokio::test(flavor = "multi_thread")]
async fn majority_after_the_deadline_is_none() {
    let five = Five::start();
    let process = five.process();
    take(&process).await.release().await;
    let mut asked = pin!(ask(&process, Wait::Try));
    five.0[..3].iter().for_each(|node| node.signal(Signal::STOP));
    assert!(asked.as_mut().now_or_never().is_none());
    five.0[..3].iter().for_each(|node| node.signal(Signal::CONT));
    until("a majority has granted it", async || five.nodes_that_have_it() >= 3).await;
    #[expect(clippy::disallowed_methods, reason = "stops the thread that counts")]
    std::thread::sleep(TTL);
    let outcome = asked.await;
    assert!(!matches!(outcome, Ok(AcquireOutcome::Acquired(_))), "{outcome:?}");
}

/// A waiter has waited for longer than an outage may take, and then some attempts get no majority.
#[tokio::test(flavor = "multi_thread")]
async fn short_stop_while_waiting_is_no_outage() {
    let five = Five::start();
    let (here, there) = (five.process(), five.process());
    let held = take(&here).await;
    let waiter = tokio::spawn(async move { ask(&there, Wait::Retry).await });
    let passes = async |time: Duration| {
        let started = Instant::now();
        until("the time passes", async || started.elapsed() > time).await;
    };
    passes(Duration::from_secs(2)).await;
    for node in &five.0[..3] {
        node.signal(Signal::STOP);
    }
    passes(Duration::from_millis(300)).await;
    for node in &five.0[..3] {
        node.signal(Signal::CONT);
    }
    held.release().await;
    let outcome = waiter.await.unwrap();
    assert!(matches!(outcome, Ok(AcquireOutcome::Acquired(_))), "{outcome:?}");
}

/// rslock: *a failed extension unlocks every node.* And redsync #153: there is one at all.
#[tokio::test(flavor = "multi_thread")]
async fn majority_renews_the_lease() {
    let mut five = Five::start();
    let (here, there) = (five.process_of(TTL * 4), five.process());
    let held = take(&here).await;
    five.0[1].kill();
    five.0[2].kill();
    let (mut renewals, mut last) = (0, i64::MAX);
    until("it is renewed twice", async || {
        let left: i64 = five.0[0].ask("PTTL holdfast:lock:{a}");
        renewals += i32::from(left > last);
        last = left;
        renewals == 2
    })
    .await;
    assert!(matches!(ask(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    assert_eq!(held.release().await, Released::Held);
}

/// node-redlock #369: *keys of a minority block each other, and no client wins.*
#[tokio::test(flavor = "multi_thread")]
async fn split_votes_are_released() {
    let five = Five::start();
    let processes: Vec<Locks> = (0..4).map(|_| five.process()).collect();
    let mut takers = tokio::task::JoinSet::new();
    let rendezvous = Arc::new(Rendezvous::default());
    for process in processes {
        let rendezvous = rendezvous.clone();
        takers.spawn(async move {
            for _ in 0..5 {
                let held = take(&process).await;
                assert!(!rendezvous.meets(Duration::from_millis(20)).await, "two hold it");
                assert_eq!(held.release().await, Released::Held);
            }
        });
    }
    while let Some(taker) = takers.join_next().await {
        taker.unwrap();
    }
    until("no node keeps it", async || five.nodes_that_have_it() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_lost_by_all_nodes_is_reported() {
    let five = Five::start();
    let (process, there) = (five.process(), five.process());
    let held = take(&process).await;
    assert!(matches!(ask(&there, Wait::Try).await.unwrap(), AcquireOutcome::Busy(_)));
    // All of them: a renewal in between takes it again on two at most, a straggler likewise.
    for node in &five.0 {
        let _: String = node.ask("FLUSHALL");
    }
    assert_eq!(held.release().await, Released::Lost);
}
