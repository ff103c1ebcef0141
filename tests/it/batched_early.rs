//! `batched`: the next batch is put together while another process has the lock.

use futures_util::future::join_all;
use holdfast::shop::audit::history::Outcome;

use crate::common::{Shop, until};
use crate::figures::{figures, value};
use crate::observer::Observer;
use crate::queue::fresh_key;

const CLIENTS: usize = 16;

/// Clients at both replicas, each of whom orders again as soon as it is answered; the first one's
/// orders stand still before their commit if `pause` says so. How many batches of each replica
/// ended like that which had been put together early.
async fn crowd(rounds: usize, pause: Option<&'static str>, end: &str) -> Vec<f64> {
    let shop = Shop::start(2).await;
    crowd_at(&shop, rounds, pause, end).await
}

async fn crowd_at(shop: &Shop, rounds: usize, pause: Option<&'static str>, end: &str) -> Vec<f64> {
    let observer = Observer::of(shop).await;
    let sku = shop.shop_item(1_000_000, 100).await;
    let clients = (0..CLIENTS).map(|n| {
        let (observer, sku) = (&observer, sku.as_str());
        async move {
            for _ in 0..rounds {
                let dress = |it: reqwest::RequestBuilder| match pause {
                    Some(pause) if n == 0 => it.header("Holdfast-Pause", pause),
                    _ => it,
                };
                let told = observer.place(n, &fresh_key(), &[(sku, 1)], dress, None).await;
                assert!(matches!(told, Outcome::Done { replayed: false, .. }), "{told:?}");
            }
        }
    });
    join_all(clients).await;
    let line = format!("holdfast_batches_early_total{{end=\"{end}\"}}");
    let mut ended = Vec::new();
    for replica in 0..2 {
        shop.until_nothing_is_locked(replica).await;
        ended.push(value(&figures(shop, replica).await, &line).unwrap_or(0.0));
    }
    let ordered = i64::try_from(CLIENTS * rounds).unwrap();
    assert_eq!(shop.number("select count(*) from orders").await, ordered);
    observer.assert_settled(0, &[&sku]).await;
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_crowd_the_next_batch_is_ready_when_the_lock_is_had() {
    let used = crowd(30, None, "used").await;
    assert!(used.iter().all(|used| *used > 0.0), "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_too_long_gives_the_connection_back_and_keeps_place_and_token() {
    let given_up = crowd(12, Some("commit:120"), "given-up").await;
    assert!(given_up[1] > 0.0, "{given_up:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_the_session_while_waiting_begins_anew_under_the_lock() {
    let shop = Shop::start(2).await;
    let killing = until("a session that has only claimed keys is ended", async || {
        // The lock's holder stands before its commit, so this one has not the lock.
        let ended = "with standing as (
                         select pid, query from pg_stat_activity
                          where datname = current_database() and state = 'idle in transaction')
                     select count(pg_terminate_backend(pid)) from standing
                      where starts_with(query, 'insert into idempotency')
                        and exists (select from standing where starts_with(query, 'with placed'))";
        shop.number(ended).await > 0
    });
    // Every order is done, and none twice.
    futures_util::join!(crowd_at(&shop, 40, Some("commit:30"), "used"), killing);
}
