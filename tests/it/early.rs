//! What is next is made ready while another has the lock: a batch under `batched`, an order under
//! `fenced`.

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
async fn crowd(of: &Early, rounds: usize, pause: Option<&'static str>, end: &str) -> Vec<f64> {
    let shop = of.shop().await;
    crowd_at(&shop, of, rounds, pause, end).await
}

/// A strategy, and the figure that counts what it had ready.
struct Early {
    strategy: &'static str,
    figure: &'static str,
}

const BATCHES: Early = Early { strategy: "batched", figure: "holdfast_batches_early_total" };
const ORDERS: Early = Early { strategy: "fenced", figure: "holdfast_transactions_early_total" };

impl Early {
    async fn shop(&self) -> Shop {
        Shop::start_with(2, &[("HOLDFAST_LOCK", self.strategy)]).await
    }
}

async fn crowd_at(
    shop: &Shop,
    of: &Early,
    rounds: usize,
    pause: Option<&'static str>,
    end: &str,
) -> Vec<f64> {
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
    let line = format!("{}{{end=\"{end}\"}}", of.figure);
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
async fn in_a_crowd_the_next_is_ready_when_the_lock_is_had() {
    for of in [BATCHES, ORDERS] {
        let used = crowd(&of, 30, None, "used").await;
        assert!(used.iter().all(|used| *used > 0.0), "{}: {used:?}", of.strategy);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_too_long_gives_the_connection_back_and_keeps_place_and_token() {
    for of in [BATCHES, ORDERS] {
        let given_up = crowd(&of, 12, Some("commit:120"), "given-up").await;
        assert!(given_up[1] > 0.0, "{}: {given_up:?}", of.strategy);
    }
}

/// The lock's holder stands before its commit, so the one that is ended has not the lock; every
/// order is done all the same, and none twice.
async fn kill_in_line(of: &Early) {
    let shop = of.shop().await;
    let killing = until("a session that has only claimed keys is ended", async || {
        let ended = "with standing as (
                         select pid, query from pg_stat_activity
                          where datname = current_database() and state = 'idle in transaction')
                     select count(pg_terminate_backend(pid)) from standing
                      where starts_with(query, 'insert into idempotency')
                        and exists (select from standing
                                     where query ~ '^with (placed|shelf)')";
        shop.number(ended).await > 0
    });
    futures_util::join!(crowd_at(&shop, of, 40, Some("commit:30"), "used"), killing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_loses_its_session_while_waiting_begins_anew_under_the_lock() {
    kill_in_line(&BATCHES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_loses_its_session_while_waiting_begins_anew_under_the_lock() {
    kill_in_line(&ORDERS).await;
}
