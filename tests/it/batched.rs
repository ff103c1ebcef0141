//! `batched`: many orders for one item in one transaction, each with its own response.

use futures_util::future::join_all;
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::{TestShop, fresh_key, until};
use serde_json::json;

/// Makes Postgres reject the orders with a [`failing_key`], as a bug would.
pub async fn fail_some_orders(shop: &TestShop) {
    for statement in [
        "create function fail_some() returns trigger language plpgsql as
         $$begin raise exception 'not this one'; end$$",
        "create trigger fail_some before insert on orders for each row
         when (new.token like 'rejected-by-postgres%') execute function fail_some()",
    ] {
        shop.execute(statement).await;
    }
}

pub fn failing_key() -> String {
    format!("rejected-by-postgres-{}", fresh_key())
}

#[tokio::test]
async fn hundred_duplicates_execute_once() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(500, 100).await;
    let key = fresh_key();
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let first = alice.orders(&sku, 2).key(&key).send();
    barrier.until_queued(1).await;
    // While the first one is queued, its duplicates are rejected without queueing.
    let others = (1..100).map(|n| alice.at(n % 2).orders(&sku, 2).key(&key).send());
    for other in join_all(others).await {
        assert_eq!(other.header("retry-after"), "1");
        other.fails(409, "idempotency-key-in-flight");
    }
    for at in 0..2 {
        alice.at(at).orders(&sku, 3).key(&key).fails(422, "idempotency-key-mismatch").await;
    }
    barrier.open().await;
    let first = first.await;
    assert!(!first.is_replayed());
    first.clone().ok();

    let again = (0..100).map(|n| alice.at(n % 2).orders(&sku, 2).key(&key).send());
    let mut replayed = 0;
    for again in join_all(again).await {
        if again.status == 201 {
            again.replays(&first);
            replayed += 1;
        } else {
            again.fails(409, "idempotency-key-in-flight");
        }
    }
    assert!(replayed > 0);
    for at in 0..2 {
        alice.at(at).orders(&sku, 2).key(&key).await.replays(&first);
        alice.at(at).orders(&sku, 3).key(&key).fails(422, "idempotency-key-mismatch").await;
    }
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn batch_replays_finished_keys_and_rejects_mismatches() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(50, 100).await;
    let (done, other) = (fresh_key(), fresh_key());
    let first = alice.at(1).orders(&sku, 1).key(&done).await;
    alice.at(1).orders(&sku, 1).key(&other).ok().await;

    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let mut queued = 0;
    let mut sent = Vec::new();
    for (at, key, many) in [
        (0, &fresh_key(), 1),
        (0, &done, 1),
        (0, &other, 5),
        (0, &fresh_key(), 1),
        (1, &fresh_key(), 1),
    ] {
        sent.push(alice.at(at).orders(&sku, many).key(key).send());
        // A finished key gets its response without waiting for the lock.
        if *key == done || *key == other {
            until("it has a response", async || sent.last().unwrap().is_finished()).await;
        } else {
            queued += 1;
        }
        barrier.until_queued(queued).await;
    }
    barrier.open().await;
    let mut sent = sent.into_iter();
    for expected in ["fresh", "replay", "mismatch", "fresh", "fresh"] {
        let response = sent.next().unwrap().await;
        match expected {
            "mismatch" => drop(response.fails(422, "idempotency-key-mismatch")),
            "replay" => response.replays(&first),
            _ => {
                assert!(!response.is_replayed());
                response.ok();
            }
        }
    }
    assert_eq!(shop.item_audit(&sku).await["sold"], 5);
    // Two before, one batch at the first replica, one at the second.
    assert_eq!(shop.order_transactions().await, 4);
    shop.assert_sound().await;
}

#[tokio::test]
async fn key_of_rejected_command_is_free_at_once() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(3, 100).await;
    alice.orders(&sku, 3).ok().await;
    let keys: Vec<String> = (0..20).map(|_| fresh_key()).collect();
    let rejected = keys.iter().map(|key| async {
        // Neither replica leaves the key locked.
        for at in [0, 1, 0, 1] {
            let body = alice.at(at).orders(&sku, 1).key(key).fails(409, "sold-out").await;
            assert_eq!(body["available"], 0);
        }
    });
    join_all(rejected).await;
    assert_eq!(shop.number("select count(*) from idempotency where path = '/api/orders'").await, 1);
    shop.restock(&sku, 20).await;
    let placed =
        keys.iter().enumerate().map(|(n, key)| alice.at(n % 2).orders(&sku, 1).key(key).send());
    for placed in join_all(placed).await {
        placed.succeeds(201);
    }
    assert_eq!(shop.item_audit(&sku).await["stock"], 0);
    shop.assert_sound().await;
}

#[tokio::test]
async fn batch_sells_in_order_of_arrival() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    // Each with the stock that is left when it is executed.
    let cases = [(4, 10), (7, 6), (3, 6), (5, 3), (2, 3), (1, 1), (1, 0)];
    let mut sent = Vec::new();
    for (many, _) in cases {
        sent.push(alice.orders(&sku, many).send());
        barrier.until_queued(sent.len()).await;
    }
    barrier.open().await;
    for ((many, there), sent) in cases.into_iter().zip(sent) {
        if many <= there {
            let change = json!({ "before": there, "delta": -many, "after": there - many });
            assert_eq!(sent.ok().await["lines"][0]["stock"], change);
        } else {
            let rejected = sent.fails(409, "sold-out").await;
            assert_eq!([&rejected["requested"], &rejected["available"]], [many, there]);
        }
    }
    assert_eq!(shop.order_transactions().await, 1);
    shop.assert_sound().await;
}

/// A leader that gets no lease rejects what has waited for the whole timeout, and waits again for
/// the others.
#[tokio::test]
async fn lock_timeout_spares_later_commands() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK_TIMEOUT_MS", "2000")]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let first = alice.orders(&sku, 1).send();
    // Its key is locked while its leader waits: that has begun.
    barrier.until_queued(1).await;
    let later = alice.orders(&sku, 1).send();
    first.fails(503, "lock-timeout").await;
    barrier.open().await;
    later.ok().await;
    assert_eq!(shop.item_audit(&sku).await["sold"], 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn failed_entry_does_not_fail_its_batch() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(50, 100).await;
    fail_some_orders(&shop).await;
    let bad = failing_key();
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let mut sent = Vec::new();
    for n in 0..21 {
        let key = if n == 13 { &bad } else { &fresh_key() };
        sent.push(alice.orders(&sku, 1).key(key).send());
    }
    barrier.until_queued(sent.len()).await;
    barrier.open().await;
    for (n, sent) in sent.into_iter().enumerate() {
        let expected = if n == 13 { (500, "internal-error") } else { (201, "") };
        assert_eq!(sent.await.outcome(), expected, "{n}");
    }
    assert_eq!(shop.item_audit(&sku).await["sold"], 20);
    // The batch is halved until the failing entry is alone.
    let transactions = shop.order_transactions().await;
    assert!((2..=5).contains(&transactions), "{transactions}");
    assert_eq!(
        shop.number("select count(*) from idempotency where path = '/api/orders'").await,
        20
    );
    shop.execute("drop trigger fail_some on orders").await;
    let again = alice.orders(&sku, 1).key(&bad).await;
    assert!(!again.is_replayed());
    again.succeeds(201);
    shop.assert_sound().await;
}
