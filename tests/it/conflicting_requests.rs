//! Two requests with one idempotency key and different bodies, at the same time.

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use holdfast_testkit::{TestShop, fresh_key};

/// Pairs per strategy, and those in flight at a time.
const PAIRS: usize = 250;
const CONCURRENT: usize = 16;

async fn check_winners(strategy: &str) {
    let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", strategy)]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10_000, 100).await;
    let send = async |replica: usize, key: &str, quantity: i64| {
        alice.at(replica).orders(&sku, quantity).key(key).await
    };
    let pair = async |n: usize| {
        let key = fresh_key();
        let requests =
            [(0, 1), (n % 2, 2)].map(|(replica, quantity)| send(replica, &key, quantity));
        let results = join_all(requests).await;
        let won: Vec<i64> = (1..)
            .zip(&results)
            .filter(|(_, result)| result.status == 201)
            .map(|(n, _)| n)
            .collect();
        let [winner] = won[..] else { panic!("{strategy}: one succeeds: {results:?}") };
        let loser = &results[usize::try_from(2 - winner).unwrap()];
        let lost = [(422, "idempotency-key-mismatch"), (409, "idempotency-key-in-flight")];
        assert!(lost.contains(&loser.outcome()), "{strategy}: {results:?}");

        // Afterwards the winner gets a replay, and the other one never does.
        let replay = send(1, &key, winner).await;
        replay.replays(&results[usize::try_from(winner - 1).unwrap()]);
        assert_eq!(replay.ok()["lines"][0]["quantity"], winner);
        assert_eq!(send(0, &key, 3 - winner).await.status, 422);
    };
    stream::iter(0..PAIRS).for_each_concurrent(CONCURRENT, pair).await;
    assert_eq!(shop.number("select count(*) from orders").await, PAIRS as i64);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batched_winner_gets_no_mismatch() {
    check_winners("batched").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_winner_gets_no_mismatch() {
    check_winners("fenced").await;
}
