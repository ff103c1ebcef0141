//! Idempotency keys: one key, one order, one response.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::barrier::Barrier;
use crate::common::requests::{Answer as _, fresh_key, is_replayed, keyed, send};
use crate::common::{Shop, User, until};

#[tokio::test]
async fn order_requires_idempotency_key() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let lines = json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] });
    let post = |path: &str| shop.request(&alice, Method::POST, 0, path).json(&lines);
    post("/api/orders").refuses(400, "idempotency-key-missing").await;
    post("/api/orders?token=0123456789abcdef")
        .header("Idempotency-Key", "fedcba9876543210")
        .refuses(400, "invalid-request")
        .await;
    post("/api/orders").header("Idempotency-Key", "short").refuses(422, "invalid-request").await;
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn replay_returns_same_bytes() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let key = Uuid::new_v4().to_string();
    // The last unit: a replay must not be rejected as sold out.
    let first = keyed(&shop, &alice, 0, &key, "last-lantern", 1).send().await.unwrap();
    assert_eq!(first.status(), 201);
    assert!(!is_replayed(&first));
    let first = first.bytes().await.unwrap();
    let quoted = format!("\"{key}\"");
    let by_query = shop
        .request(&alice, Method::POST, 1, &format!("/api/orders?token={key}"))
        .json(&json!({ "lines": [{ "quantity": 1, "sku": "last-lantern" }] }));
    for again in [
        keyed(&shop, &alice, 0, &key, "last-lantern", 1),
        keyed(&shop, &alice, 1, &key, "last-lantern", 1),
        keyed(&shop, &alice, 1, &quoted, "last-lantern", 1),
        by_query,
    ] {
        let again = again.send().await.unwrap();
        assert_eq!(again.status(), 201);
        assert!(is_replayed(&again));
        assert_eq!(again.bytes().await.unwrap(), first);
    }
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn key_is_scoped_to_user_and_path() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let key = Uuid::new_v4().to_string();
    let send = |who| keyed(&shop, who, 0, &key, "deadbolt", 1).send();
    let order_of_alice = send(&alice).await.unwrap().gives(201).await;
    let order_of_bob = send(&bob).await.unwrap().gives(201).await;
    assert_ne!(order_of_alice["id"], order_of_bob["id"]);
    let path = format!("/api/orders/{}/pay", order_of_alice["id"].as_str().unwrap());
    let pay =
        || shop.request(&alice, Method::POST, 0, &path).header("Idempotency-Key", &key).send();
    let paid = pay().await.unwrap();
    assert!(!is_replayed(&paid));
    paid.gives(200).await;
    assert!(is_replayed(&pay().await.unwrap()));
    let top_up = |cents: i64| {
        shop.request(&alice, Method::POST, 0, "/api/me/top-ups")
            .header("Idempotency-Key", &key)
            .json(&json!({ "amount_cents": cents }))
            .send()
    };
    top_up(7).await.unwrap().gives(201).await;
    top_up(7).await.unwrap().gives(201).await;
    top_up(8).await.unwrap().refuses(422, "idempotency-key-mismatch").await;
    assert_eq!(shop.read(&alice, "/api/me").await["balance_cents"], 100_000 - 4_900 + 7);
    shop.assert_sound().await;
}

#[tokio::test]
async fn other_replica_replays_after_kill() {
    let mut shop = Shop::start(2).await;
    let alice = shop.promoted("alice").await;
    let key = Uuid::new_v4().to_string();
    let lost = keyed(&shop, &alice, 0, &key, "deadbolt", 1).header("Holdfast-Pause", "committed");
    let lost = tokio::spawn(lost.send());
    until("the order is committed", async || shop.number("select count(*) from orders").await == 1)
        .await;
    shop.replicas[0].kill();
    assert!(lost.await.unwrap().is_err(), "there was no response");
    let again = keyed(&shop, &alice, 1, &key, "deadbolt", 1).send().await.unwrap();
    assert!(is_replayed(&again));
    again.gives(201).await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn kill_before_commit_frees_key_in_seconds() {
    let mut shop = Shop::start_with(2, &[("HOLDFAST_LOCK", "row-lock")]).await;
    let alice = shop.promoted("alice").await;
    let admin = shop.sign_in("admin").await;
    let key = Uuid::new_v4().to_string();
    let lost = keyed(&shop, &alice, 0, &key, "deadbolt", 1).header("Holdfast-Pause", "commit");
    let lost = tokio::spawn(lost.send());
    shop.until_one_is_paused(&admin, "commit").await;
    shop.replicas[0].kill();
    assert!(lost.await.unwrap().is_err());
    let killed = Instant::now();
    until("the key is free again", async || {
        let again = keyed(&shop, &alice, 1, &key, "deadbolt", 1).send().await.unwrap();
        match again.status().as_u16() {
            201 => {
                assert!(
                    !is_replayed(&again),
                    "nothing was committed, so this is the first response"
                );
                true
            }
            _ => {
                again.refuses(409, "idempotency-key-in-flight").await;
                false
            }
        }
    })
    .await;
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn duplicate_after_flush_gets_same_response() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(5).await;
    let key = Uuid::new_v4().to_string();
    let slow = keyed(&shop, &alice, 0, &key, &sku, 1)
        .header("Holdfast-Lock", "row-lock")
        .header("Holdfast-Work-Ms", "1000");
    let slow = tokio::spawn(slow.send());
    let token = format!("{}token:*", shop.prefix);
    let client = redis::Client::open(crate::common::services().running.redis_url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // Delete the key's lock as soon as it exists.
    until("the key was locked", async || {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(&token).query_async(&mut connection).await.unwrap();
        for key in &keys {
            let _: () = redis::cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
        }
        !keys.is_empty()
    })
    .await;
    let duplicate = keyed(&shop, &alice, 1, &key, &sku, 1)
        .header("Holdfast-Lock", "row-lock")
        .send()
        .await
        .unwrap();
    let replayed = is_replayed(&duplicate);
    let duplicate = duplicate.gives(201).await;
    let first = slow.await.unwrap().unwrap();
    // The request that inserted the key record first was executed; the other was replayed.
    assert_ne!(replayed, is_replayed(&first));
    assert_eq!(duplicate, first.gives(201).await);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn expired_key_stays_used_forever() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let key = Uuid::new_v4().to_string();
    let send = || keyed(&shop, &alice, 0, &key, "deadbolt", 1).send();
    let placed = send().await.unwrap().gives(201).await;
    for what in ["update idempotency set created_at = created_at - interval '25 hours'", PURGED] {
        shop.execute(what).await;
        let problem: Value = send().await.unwrap().json().await.unwrap();
        assert_eq!(problem["type"], "/problems/idempotency-key-used");
        assert_eq!(problem["order_id"], placed["id"]);
    }
    assert_eq!(shop.number("select count(*) from orders").await, 1);
}

/// The effect of a purge on the key records of old orders.
const PURGED: &str = "update idempotency set status = null, body = null";

async fn purge_keys(shop: &Shop) {
    shop.execute(PURGED).await;
}

#[tokio::test]
async fn expired_key_is_checked_before_stock_and_limit() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let cases = [
        (shop.shop_item(1, 100).await, "sold-out"),
        (shop.limited_item(false, 100, 1).await, "limit-reached"),
    ];
    for (sku, rejection) in cases {
        let key = fresh_key();
        let order = async |key: &str, sku: &str, many: i64| {
            let (status, kind, body) = keyed(&shop, &alice, 0, key, sku, many).outcome().await;
            (status, kind, body["order_id"].clone(), body["id"].clone())
        };
        let (status, _, _, id) = order(&key, &sku, 1).await;
        assert_eq!(status, 201);
        purge_keys(&shop).await;
        let used = (409, "idempotency-key-used".to_owned(), id, Value::Null);
        assert_eq!(order(&key, &sku, 1).await, used, "{rejection}: in a batch");
        let (status, kind, ..) = order(&fresh_key(), &sku, 1).await;
        assert_eq!((status, kind.as_str()), (409, rejection), "with a new key");
        // Now the sold-out cache rejects the order before it is queued.
        for many in [1, 2] {
            assert_eq!(
                order(&key, &sku, many).await,
                used,
                "{rejection}: before the queue, {many}"
            );
        }
        assert_eq!(order(&key, "no-such-item", 1).await, used, "{rejection}: of an unknown item");
    }
    assert_eq!(shop.number("select count(*) from orders").await, 2);
    assert_eq!(shop.number("select count(*) from idempotency").await, 2);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_reports_each_users_own_key() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let sku = shop.shop_item(3, 100).await;
    let (key_of_alice, key_of_bob) = (fresh_key(), fresh_key());
    let mut placed = Vec::new();
    for (who, key) in [(&alice, &key_of_alice), (&bob, &key_of_bob)] {
        let order = keyed(&shop, who, 0, key, &sku, 1).send().await.unwrap();
        placed.push(order.gives(201).await["id"].clone());
    }
    purge_keys(&shop).await;
    // One unit is left, which the first order gets.
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let senders =
        [(&bob, fresh_key()), (&alice, key_of_alice), (&bob, key_of_bob), (&alice, fresh_key())];
    let mut sent = Vec::new();
    for (place, (who, key)) in senders.into_iter().enumerate() {
        sent.push(send(keyed(&shop, who, 0, &key, &sku, 1)));
        if [1, 2].contains(&place) {
            until("it has a response", async || sent.last().unwrap().is_finished()).await;
        }
        let waiting = sent.iter().filter(|sent| !sent.is_finished()).count();
        barrier.until_queued(waiting).await;
    }
    barrier.open().await;
    let mut responses = Vec::new();
    for sent in sent {
        let (status, kind, body) = sent.outcome().await;
        responses.push((status, kind, body["order_id"].clone()));
    }
    let used = |n: usize| (409, "idempotency-key-used".to_owned(), placed[n].clone());
    let sold_out = (409, "sold-out".to_owned(), Value::Null);
    assert_eq!(responses, [(201, String::new(), Value::Null), used(0), used(1), sold_out]);
    shop.assert_sound().await;
}

/// Sends with that key, to both replicas in turn: the second response is a replay of the first.
async fn assert_other_replica_replays(shop: &Shop, who: &User, path: &str, json: Option<Value>) {
    let key = fresh_key();
    let send = |replica: usize| {
        let request = shop.http.post(shop.url(replica, path)).bearer_auth(&who.token);
        let request = request.header("Idempotency-Key", &key);
        match &json {
            Some(json) => request.json(json).send(),
            None => request.send(),
        }
    };
    let first = send(0).await.unwrap();
    assert_eq!((first.status(), is_replayed(&first)), (StatusCode::OK, false), "{path}");
    let again = send(1).await.unwrap();
    assert_eq!((again.status(), is_replayed(&again)), (StatusCode::OK, true), "{path}");
    assert_eq!(first.bytes().await.unwrap(), again.bytes().await.unwrap(), "{path}");
}

#[tokio::test]
async fn restock_cancel_and_refund_replay_under_their_keys() {
    let shop = Shop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let restock = json!({ "delta": 2, "reason": "found two" });
    let bare = shop.http.post(shop.url(0, "/api/items/deadbolt/stock"));
    bare.bearer_auth(&admin.token).json(&restock).refuses(400, "idempotency-key-missing").await;
    assert_other_replica_replays(&shop, &admin, "/api/items/deadbolt/stock", Some(restock)).await;
    for undone in ["cancel", "refund"] {
        let id = keyed(&shop, &alice, 0, &fresh_key(), "deadbolt", 1).gives(201).await["id"]
            .as_str()
            .unwrap()
            .to_owned();
        if undone == "refund" {
            shop.post(&alice, 0, &format!("/api/orders/{id}/pay")).gives(200).await;
        }
        assert_other_replica_replays(&shop, &alice, &format!("/api/orders/{id}/{undone}"), None)
            .await;
    }
    assert_eq!(shop.stock(&alice, "deadbolt").await, 42);
    shop.assert_sound().await;
}
