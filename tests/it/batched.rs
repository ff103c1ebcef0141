//! `batched`: many orders for one item in one transaction, each with its own response.

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use crate::barrier::Barrier;
use crate::common::requests::{Answer as _, fresh_key, is_replayed, keyed, send};
use crate::common::{Shop, until};

#[tokio::test]
async fn hundred_duplicates_execute_once() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(500, 100).await;
    let key = fresh_key();
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let first = send(keyed(&shop, &alice, 0, &key, &sku, 2));
    barrier.until_queued(1).await;
    // While the first one is queued, its duplicates are rejected without queueing.
    let others = (1..100).map(|n| keyed(&shop, &alice, n % 2, &key, &sku, 2).send());
    for other in join_all(others).await {
        let other = other.unwrap();
        assert_eq!(other.headers()["retry-after"], "1");
        other.refuses(409, "idempotency-key-in-flight").await;
    }
    for at in 0..2 {
        keyed(&shop, &alice, at, &key, &sku, 3).refuses(422, "idempotency-key-mismatch").await;
    }
    barrier.open().await;
    let first = first.response().await;
    assert!(!is_replayed(&first));
    assert_eq!(first.status(), StatusCode::CREATED);
    let bytes = first.bytes().await.unwrap();
    let again = (0..100).map(|n| keyed(&shop, &alice, n % 2, &key, &sku, 2).send());
    let mut replayed = 0;
    for again in join_all(again).await {
        let again = again.unwrap();
        if again.status() == StatusCode::CREATED {
            assert!(is_replayed(&again));
            assert_eq!(again.bytes().await.unwrap(), bytes);
            replayed += 1;
        } else {
            again.refuses(409, "idempotency-key-in-flight").await;
        }
    }
    assert!(replayed > 0);
    for at in 0..2 {
        let again = keyed(&shop, &alice, at, &key, &sku, 2).send().await.unwrap();
        assert!(is_replayed(&again));
        assert_eq!(again.bytes().await.unwrap(), bytes);
        keyed(&shop, &alice, at, &key, &sku, 3).refuses(422, "idempotency-key-mismatch").await;
    }
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn batch_replays_finished_keys_and_rejects_mismatches() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(50, 100).await;
    let (done, other) = (fresh_key(), fresh_key());
    let place = |key: &str| keyed(&shop, &alice, 1, key, &sku, 1).send();
    let bytes = place(&done).await.unwrap().bytes().await.unwrap();
    place(&other).await.unwrap();
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
        sent.push(send(keyed(&shop, &alice, at, key, &sku, many)));
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
        let response = sent.next().unwrap().response().await;
        match expected {
            "mismatch" => assert_eq!(response.fails(422).await, "idempotency-key-mismatch"),
            _ => {
                assert_eq!(response.status(), StatusCode::CREATED);
                assert_eq!(is_replayed(&response), expected == "replay");
                if expected == "replay" {
                    assert_eq!(response.bytes().await.unwrap(), bytes);
                }
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
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(3, 100).await;
    shop.place_order(&alice, &sku, 3).await;
    let keys: Vec<String> = (0..20).map(|_| fresh_key()).collect();
    let rejected = keys.iter().map(|key| async {
        // Neither replica leaves the key locked.
        for at in [0, 1, 0, 1] {
            let body = keyed(&shop, &alice, at, key, &sku, 1).refuses(409, "sold-out").await;
            assert_eq!(body["available"], 0);
        }
    });
    join_all(rejected).await;
    assert_eq!(shop.number("select count(*) from idempotency").await, 1);
    shop.restock(&sku, 20).await;
    let placed = keys.iter().enumerate();
    let placed = placed.map(|(n, key)| keyed(&shop, &alice, n % 2, key, &sku, 1).send());
    for placed in join_all(placed).await {
        placed.unwrap().gives(201).await;
    }
    assert_eq!(shop.item_audit(&sku).await["stock"], 0);
    shop.assert_sound().await;
}

#[tokio::test]
async fn batch_sells_in_order_of_arrival() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    // Each with the stock that is left when it is executed.
    let cases = [(4, 10), (7, 6), (3, 6), (5, 3), (2, 3), (1, 1), (1, 0)];
    let mut sent = Vec::new();
    for (many, _) in cases {
        sent.push(send(shop.order(&alice, 0, &sku, many)));
        barrier.until_queued(sent.len()).await;
    }
    barrier.open().await;
    for ((many, there), sent) in cases.into_iter().zip(sent) {
        let (status, kind, body) = sent.outcome().await;
        if many <= there {
            let change = json!({ "before": there, "delta": -many, "after": there - many });
            assert_eq!((status, &body["lines"][0]["stock"]), (201, &change), "{body}");
        } else {
            assert_eq!((status, kind.as_str()), (409, "sold-out"), "{body}");
            assert_eq!((&body["requested"], &body["available"]), (&json!(many), &json!(there)));
        }
    }
    assert_eq!(shop.order_transactions().await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn failed_entry_does_not_fail_its_batch() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(50, 100).await;
    for statement in [
        "create function fail_some() returns trigger language plpgsql as
         $$begin raise exception 'not this one'; end$$",
        "create trigger fail_some before insert on orders for each row
         when (new.token like 'rejected-by-postgres%') execute function fail_some()",
    ] {
        shop.execute(statement).await;
    }
    let bad = format!("rejected-by-postgres-{}", fresh_key());
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let mut sent = Vec::new();
    for n in 0..21 {
        let key = if n == 13 { &bad } else { &fresh_key() };
        sent.push(send(keyed(&shop, &alice, 0, key, &sku, 1)));
    }
    barrier.until_queued(sent.len()).await;
    barrier.open().await;
    for (n, sent) in sent.into_iter().enumerate() {
        let (status, kind, body) = sent.outcome().await;
        let expected = if n == 13 { (500, "internal-error") } else { (201, "") };
        assert_eq!((status, kind.as_str()), expected, "{body}");
    }
    assert_eq!(shop.item_audit(&sku).await["sold"], 20);
    // The batch is halved until the failing entry is alone.
    let transactions = shop.order_transactions().await;
    assert!((2..=5).contains(&transactions), "{transactions}");
    assert_eq!(shop.number("select count(*) from idempotency").await, 20);
    shop.execute("drop trigger fail_some on orders").await;
    let again = keyed(&shop, &alice, 0, &bad, &sku, 1).send().await.unwrap();
    assert!(!is_replayed(&again));
    again.gives(201).await;
    shop.assert_sound().await;
}
