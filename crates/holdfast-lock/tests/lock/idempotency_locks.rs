//! Locks of idempotency keys, in every topology.

use std::time::{Duration, Instant};

use holdfast_lock::IdempotencyLockResult::{Acquired, InFlight, Mismatch};
use holdfast_lock::{Error, IdempotencyLockResult, IdempotencyLocks};
use rustix::process::Signal;

use crate::server::{Server, each_topology, run, until};
use crate::topology::Topology;

each_topology!(
    duplicate_is_distinguished_from_mismatch,
    released_locks_are_free_at_once,
    kept_lock_is_not_renewed,
    held_lock_outlives_its_ttl,
    dropped_locks_are_released,
);

/// Upper bound of an acquisition, on a busy machine.
const MAX_ACQUIRE_TIME: Duration = Duration::from_millis(1_500);
/// For which a silent node is awaited each time, unless its outage is remembered.
const MAX_WAIT_FOR_NODES: Duration = Duration::from_millis(200);

/// More than one script or pipeline of the Cluster's nodes.
const BATCH: usize = 600;

fn idempotency_locks(server: &Server) -> IdempotencyLocks {
    IdempotencyLocks::new(&server.process().0)
}

fn requests(keys: &[(&str, &str)]) -> Vec<(String, String)> {
    keys.iter().map(|(name, hex)| ((*name).to_owned(), (*hex).to_owned())).collect()
}

/// The results of an acquisition while Redis responds.
async fn acquire(
    locks: &mut IdempotencyLocks,
    keys: &[(String, String)],
) -> Vec<IdempotencyLockResult> {
    locks.acquire(keys).await.into_iter().map(Result::unwrap).collect()
}

fn batch() -> Vec<(String, String)> {
    (0..BATCH).map(|number| (format!("{{alice:{number}}}"), "af".to_owned())).collect()
}

/// A key on each master of a Cluster, in their order.
fn request_per_master(number: u32) -> Vec<(String, String)> {
    ["{b}", "{c}", "{a}"].map(|tag| (format!("{tag}{number}"), "af".to_owned())).into()
}

fn tokens_left(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.starts_with("holdfast:token:")).count()
}

async fn duplicate_is_distinguished_from_mismatch(server: &Server) {
    let (mut here, mut there) = (idempotency_locks(server), idempotency_locks(server));
    let first = acquire(&mut here, &requests(&[("{a:1}", "af"), ("{b:1}", "b0")])).await;
    assert_eq!(first, [Acquired, Acquired]);
    let keys = requests(&[("{b:1}", "af"), ("{c:1}", "af"), ("{a:1}", "af"), ("{c:1}", "b0")]);
    let second = acquire(&mut there, &keys).await;
    assert_eq!(second[..1], [Mismatch]);
    assert_eq!(second[2], InFlight);
    assert!(matches!(second[1..4], [Acquired, _, Mismatch] | [Mismatch, _, Acquired]));
    let again = acquire(&mut here, &requests(&[("{a:1}", "af")])).await;
    assert_eq!(again, [InFlight], "also for its own holder");
}

async fn released_locks_are_free_at_once(server: &Server) {
    let (mut here, mut there) = (idempotency_locks(server), idempotency_locks(server));
    let keys = batch();
    assert_eq!(acquire(&mut here, &keys).await, [Acquired; BATCH]);
    assert_eq!(acquire(&mut there, &keys).await, [InFlight; BATCH]);
    let (front, back) = keys.split_at(BATCH - 1);
    there.release(&[back[0].0.clone()]).await;
    assert_eq!(tokens_left(server), BATCH, "only the holder's release counts");
    here.release(&front.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()).await;
    assert_eq!(acquire(&mut there, front).await, [Acquired; BATCH - 1]);
    assert_eq!(acquire(&mut there, back).await, [InFlight]);
}

async fn kept_lock_is_not_renewed(server: &Server) {
    let (mut here, mut there) = (idempotency_locks(server), idempotency_locks(server));
    let keys = requests(&[("{a:1}", "af")]);
    assert_eq!(acquire(&mut here, &keys).await, [Acquired]);
    here.leave_to_expire("{a:1}");
    here.release(&["{a:1}".to_owned()]).await;
    drop(here);
    assert_eq!(acquire(&mut there, &keys).await, [InFlight], "it is not released");
    until("it has expired", async || tokens_left(server) == 0).await;
}

async fn held_lock_outlives_its_ttl(server: &Server) {
    let mut here = idempotency_locks(server);
    assert_eq!(acquire(&mut here, &batch()).await, [Acquired; BATCH]);
    // Longer than its TTL of 3 s. That it does not end is no event.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(tokens_left(server), BATCH);
}

async fn dropped_locks_are_released(server: &Server) {
    let mut here = idempotency_locks(server);
    assert_eq!(acquire(&mut here, &batch()).await, [Acquired; BATCH]);
    drop(here);
    let dropped = Instant::now();
    until("nothing is left", async || tokens_left(server) == 0).await;
    assert!(dropped.elapsed() < Duration::from_secs(2), "released, not expired");
}

#[test]
fn lock_without_reply_is_released_soon() {
    run(Topology::Redis, async |server| {
        let mut here = idempotency_locks(server);
        let keys = requests(&[("{a:1}", "af")]);
        assert_eq!(acquire(&mut here, &requests(&[("{b:1}", "af")])).await, [Acquired]);
        server.signal(Signal::STOP);
        let results = here.acquire(&keys).await;
        assert!(matches!(*results, [Err(Error::Unavailable(_))]), "{results:?}");
        server.signal(Signal::CONT);
        until("the lock is acquired", async || {
            matches!(*here.acquire(&keys).await, [Ok(Acquired)])
        })
        .await;
    });
}

#[test]
fn silent_master_fails_only_its_keys() {
    run(Topology::Cluster, async |server| {
        let mut here = idempotency_locks(server);
        // One on each of the three masters; the last one stops.
        let request = |number| request_per_master(number);
        assert_eq!(acquire(&mut here, &request(0)).await, [Acquired; 3]);
        server.signal_one(2, Signal::STOP);
        for number in 1..20 {
            let began = Instant::now();
            let results = here.acquire(&request(number)).await;
            assert!(
                matches!(*results, [Ok(Acquired), Ok(Acquired), Err(Error::Unavailable(_))]),
                "{results:?}"
            );
            assert!(began.elapsed() < MAX_ACQUIRE_TIME, "{number}: {:?}", began.elapsed());
        }
        until("the outage is remembered", async || {
            let began = Instant::now();
            let results = here.acquire(&request(20)).await;
            results[2].is_err() && began.elapsed() < MAX_WAIT_FOR_NODES / 2
        })
        .await;
        server.signal_one(2, Signal::CONT);
        until("all are granted again", async || {
            here.acquire(&request(21)).await.iter().all(Result::is_ok)
        })
        .await;
    });
}

#[test]
fn renewals_of_a_held_lock_are_bounded() {
    run(Topology::Redis, async |server| {
        let mut here = idempotency_locks(server);
        assert_eq!(acquire(&mut here, &requests(&[("{a:1}", "af")])).await, [Acquired]);
        let acquired = Instant::now();
        // Renewals go on for 15 s. That they have not ended earlier is no event.
        tokio::time::sleep(Duration::from_secs(14)).await;
        assert_eq!(tokens_left(server), 1);
        until("the last lease is over", async || tokens_left(server) == 0).await;
        let held = acquired.elapsed();
        assert!(held < Duration::from_secs(19), "15 s of renewals, then 3 s of lease: {held:?}");
    });
}
