//! Locks of idempotency keys, in every topology.

use std::time::Duration;

use holdfast_lock::IdempotencyLockResult::{Acquired, InFlight, Mismatch};
use holdfast_lock::{Error, IdempotencyLocks};
use rustix::process::Signal;

use crate::server::{Server, everywhere, run, until};
use crate::topology::Topology;

everywhere!(
    duplicate_is_told_from_mismatch,
    released_locks_are_free_at_once,
    kept_lock_is_not_renewed,
    held_lock_outlives_its_ttl,
    dropped_locks_are_released,
);

/// More than one script or pipeline of the Cluster's nodes.
const BATCH: usize = 600;

fn idempotency_locks(server: &Server) -> IdempotencyLocks {
    IdempotencyLocks::new(&server.process().0)
}

fn wanted(keys: &[(&str, &str)]) -> Vec<(String, String)> {
    keys.iter().map(|(name, hex)| ((*name).to_owned(), (*hex).to_owned())).collect()
}

fn batch() -> Vec<(String, String)> {
    (0..BATCH).map(|number| (format!("{{alice:{number}}}"), "af".to_owned())).collect()
}

fn tokens_left(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.starts_with("holdfast:token:")).count()
}

async fn duplicate_is_told_from_mismatch(server: &Server) {
    let (mut here, mut there) = (idempotency_locks(server), idempotency_locks(server));
    let first = here.acquire(&wanted(&[("{a:1}", "af"), ("{b:1}", "b0")])).await.unwrap();
    assert_eq!(first, [Acquired, Acquired]);
    let asked = wanted(&[("{b:1}", "af"), ("{c:1}", "af"), ("{a:1}", "af"), ("{c:1}", "b0")]);
    let second = there.acquire(&asked).await.unwrap();
    assert_eq!(second[..1], [Mismatch]);
    assert_eq!(second[2], InFlight);
    assert!(matches!(second[1..4], [Acquired, _, Mismatch] | [Mismatch, _, Acquired]));
    let again = here.acquire(&wanted(&[("{a:1}", "af")])).await.unwrap();
    assert_eq!(again, [InFlight], "also by its own holder");
}

async fn released_locks_are_free_at_once(server: &Server) {
    let (mut here, mut there) = (idempotency_locks(server), idempotency_locks(server));
    let asked = batch();
    assert_eq!(here.acquire(&asked).await.unwrap(), [Acquired; BATCH]);
    assert_eq!(there.acquire(&asked).await.unwrap(), [InFlight; BATCH]);
    let (front, back) = asked.split_at(BATCH - 1);
    there.release(&[back[0].0.clone()]).await;
    assert_eq!(tokens_left(server), BATCH, "only the holder's release counts");
    here.release(&front.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()).await;
    assert_eq!(there.acquire(front).await.unwrap(), [Acquired; BATCH - 1]);
    assert_eq!(there.acquire(back).await.unwrap(), [InFlight]);
}

async fn kept_lock_is_not_renewed(server: &Server) {
    let (mut here, mut there) = (idempotency_locks(server), idempotency_locks(server));
    let asked = wanted(&[("{a:1}", "af")]);
    assert_eq!(here.acquire(&asked).await.unwrap(), [Acquired]);
    here.leave_to_expire("{a:1}");
    here.release(&["{a:1}".to_owned()]).await;
    drop(here);
    assert_eq!(there.acquire(&asked).await.unwrap(), [InFlight], "it is not released");
    until("it has expired", async || tokens_left(server) == 0).await;
}

async fn held_lock_outlives_its_ttl(server: &Server) {
    let mut here = idempotency_locks(server);
    assert_eq!(here.acquire(&batch()).await.unwrap(), [Acquired; BATCH]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(tokens_left(server), BATCH);
}

async fn dropped_locks_are_released(server: &Server) {
    let mut here = idempotency_locks(server);
    assert_eq!(here.acquire(&batch()).await.unwrap(), [Acquired; BATCH]);
    drop(here);
    let dropped = std::time::Instant::now();
    until("nothing is left", async || tokens_left(server) == 0).await;
    assert!(dropped.elapsed() < Duration::from_secs(2), "released, not expired");
}

#[test]
fn unanswered_acquire_is_released_by_the_next() {
    run(Topology::Redis, async |server| {
        let mut here = idempotency_locks(server);
        let asked = wanted(&[("{a:1}", "af")]);
        assert_eq!(here.acquire(&wanted(&[("{b:1}", "af")])).await.unwrap(), [Acquired]);
        server.signal(Signal::STOP);
        let error = here.acquire(&asked).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        server.signal(Signal::CONT);
        until("it is ours", async || {
            matches!(here.acquire(&asked).await.as_deref(), Ok([Acquired]))
        })
        .await;
    });
}

#[test]
fn renewals_of_a_held_lock_are_bounded() {
    run(Topology::Redis, async |server| {
        let mut here = idempotency_locks(server);
        assert_eq!(here.acquire(&wanted(&[("{a:1}", "af")])).await.unwrap(), [Acquired]);
        tokio::time::sleep(Duration::from_secs(14)).await;
        assert_eq!(tokens_left(server), 1);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(tokens_left(server), 0, "15 s of renewals, then 3 s of lease");
    });
}
