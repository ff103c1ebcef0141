//! Idempotency keys: one key, one order, one response.

use std::time::Instant;

use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::{BUSY_MACHINE, Call, LEASE, TestShop, fresh_key, id_of, until};
use serde_json::json;

#[tokio::test]
async fn order_requires_idempotency_key() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let lines = json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] });

    alice.orders("deadbolt", 1).without_key().fails(400, "idempotency-key-missing").await;
    alice.orders("deadbolt", 1).key("short").fails(422, "invalid-request").await;
    let two_keys = alice.post("/api/orders?token=0123456789abcdef").json(&lines);
    two_keys.fails(400, "invalid-request").await;
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn replay_returns_same_bytes() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let key = fresh_key();
    // The last unit: a replay must not be rejected as sold out.
    let first = alice.orders("last-lantern", 1).key(&key).await;
    assert_eq!((first.status, first.is_replayed()), (201, false));

    let reordered = json!({ "lines": [{ "quantity": 1, "sku": "last-lantern" }] });
    let by_query = alice.at(1).post(&format!("/api/orders?token={key}")).without_key();
    for again in [
        alice.orders("last-lantern", 1).key(&key),
        alice.at(1).orders("last-lantern", 1).key(&key),
        alice.at(1).orders("last-lantern", 1).key(&format!("\"{key}\"")),
        by_query.json(&reordered),
    ] {
        again.await.replays(&first);
    }
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn key_is_scoped_to_user_and_path() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let key = fresh_key();
    let order_of_alice = alice.orders("deadbolt", 1).key(&key).ok().await;
    let order_of_bob = bob.orders("deadbolt", 1).key(&key).ok().await;
    assert_ne!(order_of_alice["id"], order_of_bob["id"]);

    let paid = alice.pays(&order_of_alice).key(&key).await;
    assert_eq!((paid.status, paid.is_replayed()), (200, false));
    alice.pays(&order_of_alice).key(&key).await.replays(&paid);

    let top_up = |cents: i64| alice.tops_up(cents).key(&key);
    top_up(7).ok().await;
    top_up(7).ok().await;
    top_up(8).fails(422, "idempotency-key-mismatch").await;
    assert_eq!(alice.reads("/api/me").await["balance_cents"], 100_000 - 4_900 + 7);
    shop.assert_sound().await;
}

#[tokio::test]
async fn other_replica_replays_after_kill() {
    let mut shop = TestShop::start(2).await;
    let alice = shop.promoted("alice").await;
    let key = fresh_key();
    let lost = alice.orders("deadbolt", 1).key(&key).pause("committed").send();
    until("the order is committed", async || shop.number("select count(*) from orders").await == 1)
        .await;
    shop.replicas[0].kill();
    assert!(lost.result().await.is_err(), "there was no response");
    let again = alice.at(1).orders("deadbolt", 1).key(&key).await;
    assert!(again.is_replayed());
    again.succeeds(201);
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn kill_before_commit_frees_key_in_seconds() {
    let mut shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", "row-lock")]).await;
    let alice = shop.promoted("alice").await;
    let admin = shop.sign_in("admin").await;
    let key = fresh_key();
    let lost = alice.orders("deadbolt", 1).key(&key).pause("commit").send();
    shop.until_one_is_paused(&admin, "commit").await;
    shop.replicas[0].kill();
    assert!(lost.result().await.is_err());
    let killed = Instant::now();
    until("the key is free again", async || {
        let again = alice.at(1).orders("deadbolt", 1).key(&key).await;
        match again.status {
            201 => {
                // Nothing was committed, so this is the first response.
                assert!(!again.is_replayed());
                true
            }
            _ => {
                again.fails(409, "idempotency-key-in-flight");
                false
            }
        }
    })
    .await;
    assert!(killed.elapsed() < LEASE + BUSY_MACHINE, "{:?}", killed.elapsed());
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn duplicate_after_flush_gets_same_response() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(5).await;
    let key = fresh_key();
    let slow = alice.orders(&sku, 1).key(&key).lock("row-lock").work_ms(1_000).send();
    let token = format!("{}token:*", shop.prefix);
    let client =
        redis::Client::open(holdfast_testkit::services().running.redis_url.as_str()).unwrap();
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
    let duplicate = alice.at(1).orders(&sku, 1).key(&key).lock("row-lock").await;
    let replayed = duplicate.is_replayed();
    let duplicate = duplicate.succeeds(201);
    let first = slow.await;
    // The request that inserted the key record first was executed; the other was replayed.
    assert_ne!(replayed, first.is_replayed());
    assert_eq!(duplicate, first.succeeds(201));
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test]
async fn expired_key_stays_used_forever() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("deadbolt", 1);
    let placed = order.clone().ok().await;
    for what in ["update idempotency set created_at = created_at - interval '25 hours'", PURGED] {
        shop.execute(what).await;
        let problem = order.clone().fails(409, "idempotency-key-used").await;
        assert_eq!(problem["order_id"], placed["id"]);
    }
    assert_eq!(shop.number("select count(*) from orders").await, 1);
}

/// The effect of a purge on the key records of old orders.
const PURGED: &str = "update idempotency set status = null, body = null";

async fn purge_keys(shop: &TestShop) {
    shop.execute(PURGED).await;
}

#[tokio::test]
async fn expired_key_is_checked_before_stock_and_limit() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let cases = [
        (shop.shop_item(1, 100).await, "sold-out"),
        (shop.limited_item(false, 100, 1).await, "limit-reached"),
    ];
    for (sku, rejection) in cases {
        let key = fresh_key();
        let placed = alice.orders(&sku, 1).key(&key).ok().await;
        let is_used = async |sku: &str, many: i64| {
            let order = alice.orders(sku, many).key(&key);
            let rejected = order.fails(409, "idempotency-key-used").await;
            assert_eq!(rejected["order_id"], placed["id"], "{rejection}");
        };
        purge_keys(&shop).await;

        // In a batch.
        is_used(&sku, 1).await;
        alice.orders(&sku, 1).fails(409, rejection).await;
        // Now the sold-out cache rejects the order before it is queued.
        is_used(&sku, 1).await;
        is_used(&sku, 2).await;
        is_used("no-such-item", 1).await;
    }
    assert_eq!(shop.number("select count(*) from orders").await, 2);
    assert_eq!(shop.number("select count(*) from idempotency where path = '/api/orders'").await, 2);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_reports_each_users_own_key() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let sku = shop.shop_item(3, 100).await;
    let (key_of_alice, key_of_bob) = (fresh_key(), fresh_key());
    let mut placed = Vec::new();
    for (who, key) in [(&alice, &key_of_alice), (&bob, &key_of_bob)] {
        placed.push(who.orders(&sku, 1).key(key).ok().await["id"].clone());
    }
    purge_keys(&shop).await;

    // One unit is left, which the first order gets.
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let senders =
        [(&bob, fresh_key()), (&alice, key_of_alice), (&bob, key_of_bob), (&alice, fresh_key())];
    let mut sent = Vec::new();
    for (place, (who, key)) in senders.into_iter().enumerate() {
        sent.push(who.orders(&sku, 1).key(&key).send());
        if [1, 2].contains(&place) {
            until("it has a response", async || sent.last().unwrap().is_finished()).await;
        }
        let waiting = sent.iter().filter(|sent| !sent.is_finished()).count();
        barrier.until_queued(waiting).await;
    }
    barrier.open().await;

    let [first, used_by_alice, used_by_bob, sold_out] = sent.try_into().unwrap();
    first.ok().await;
    let used = [used_by_alice.await, used_by_bob.await];
    for (used, placed) in used.into_iter().zip(placed) {
        assert_eq!(used.fails(409, "idempotency-key-used")["order_id"], placed);
    }
    sold_out.fails(409, "sold-out").await;
    shop.assert_sound().await;
}

/// Sends a command to both replicas: the second response is a replay of the first.
async fn assert_other_replica_replays(command: impl Fn(usize) -> Call) {
    let key = fresh_key();
    let first = command(0).key(&key).await;
    assert_eq!((first.status, first.is_replayed()), (200, false), "{first}");
    command(1).key(&key).await.replays(&first);
}

#[tokio::test]
async fn restock_cancel_and_refund_replay_under_their_keys() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    admin.restocks("deadbolt", 2).without_key().fails(400, "idempotency-key-missing").await;
    assert_other_replica_replays(|replica| admin.at(replica).restocks("deadbolt", 2)).await;

    for action in ["cancel", "refund"] {
        let order = alice.orders("deadbolt", 1).ok().await;
        if action == "refund" {
            alice.pays(&order).ok().await;
        }
        assert_other_replica_replays(|replica| alice.at(replica).acts(&order, action)).await;
    }
    assert_eq!(shop.stock("deadbolt").await, 42);
    shop.assert_sound().await;
}

/// What earlier builds have answered.
const STORED: &str = r#"{"stored":true}"#;

/// Stores the record of a key as earlier builds did, for `content`, their text of the parsed
/// request.
async fn store_key(shop: &TestShop, user: &str, path: &str, key: &str, content: &str) {
    let store = "insert into idempotency
               (id, user_id, method, path, key, fingerprint, status, body)
        select encode(substring(sha256(convert_to(
                   id || ' POST ' || $2 || ' ' || $3, 'UTF8')) from 1 for 16), 'hex')::uuid,
               id, 'POST', $2, $3, sha256(convert_to($4, 'UTF8')), 200, convert_to($5, 'UTF8')
          from users where name = $1";
    let store = sqlx::query(store).bind(user).bind(path).bind(key).bind(content);
    let stored = store.bind(STORED).execute(&shop.pool).await.unwrap();
    assert_eq!(stored.rows_affected(), 1);
}

#[tokio::test]
async fn keys_of_earlier_builds_replay() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let order = id_of(&alice.orders("deadbolt", 1).ok().await);
    let of_order = |action: &str| format!("/api/orders/{order}/{action}");
    let end_sessions = "/api/admin/users/alice/end-sessions";

    for (user, path, call, content) in [
        ("alice", of_order("pay"), alice.pays(&order), ""),
        ("alice", of_order("cancel"), alice.cancels(&order), ""),
        ("alice", of_order("refund"), alice.refunds(&order), ""),
        ("alice", "/api/me/top-ups".to_owned(), alice.tops_up(7), "7"),
        (
            "admin",
            "/api/items/deadbolt/stock".to_owned(),
            admin.restocks("deadbolt", 3),
            "3 restock",
        ),
        ("admin", end_sessions.to_owned(), admin.post(end_sessions), ""),
    ] {
        let key = fresh_key();
        store_key(&shop, user, &path, &key, content).await;
        let reply = call.key(&key).await;
        assert!(reply.status == 200 && reply.is_replayed(), "{path}: {}", reply.text());
        assert_eq!(reply.text(), STORED, "{path}");
    }
    assert_eq!(shop.stock("deadbolt").await, 39);
}
