//! `batched`: a batch that reads nothing, because its leader knows the row that its last batch
//! under the same lease wrote. Others may have written it since.

use futures_util::future::join_all;
use holdfast_testkit::{Call, Reply, TestShop, User, fresh_key, until};

use crate::batched::{fail_some_orders, failing_key};
use crate::metrics::{metrics, value};

/// On a loaded machine a lease may end before the second batch, which then reads.
const MAX_ATTEMPTS: usize = 30;

/// Orders one unit, pauses that batch behind its commit, and sends `calls`, which form the next
/// one. Once they are queued and `meanwhile` is done, it goes on. Returns their replies.
pub async fn send_behind_batch(
    shop: &TestShop,
    admin: &User,
    sku: &str,
    calls: Vec<Call>,
    meanwhile: impl Future<Output = ()>,
) -> Vec<Reply> {
    let paused = shop.pause(admin, admin.orders(sku, 1), "committed").await;
    let mut queued = Vec::new();
    for call in calls {
        // One of the two is in the queue as soon as the other one is a duplicate of it.
        let mut pair = vec![call.clone().send(), call.send()];
        until("one of the two is queued", async || pair.iter().any(|sent| sent.is_finished()))
            .await;
        let duplicate = pair.iter().position(|sent| sent.is_finished()).unwrap();
        let reply = pair.remove(duplicate).await;
        let is_duplicate = reply.is_replayed()
            || ["idempotency-key-in-flight", "idempotency-key-mismatch"].contains(&reply.problem());
        assert!(is_duplicate, "{reply}");
        queued.append(&mut pair);
    }
    meanwhile.await;
    shop.resume(admin, paused).await.succeeds(201);
    join_all(queued).await
}

async fn unread(shop: &TestShop, outcome: &str) -> f64 {
    let line = format!("holdfast_unread_batches_total{{outcome=\"{outcome}\"}}");
    value(&metrics(shop, 0).await, &line).unwrap_or(0.0)
}

#[tokio::test]
async fn next_batch_under_a_lease_reads_nothing() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(100_000, 100).await;
    let mut placed = 0;
    for _ in 0..MAX_ATTEMPTS {
        let calls = vec![admin.orders(&sku, 2), admin.orders(&sku, 3)];
        for reply in send_behind_batch(&shop, &admin, &sku, calls, async {}).await {
            reply.succeeds(201);
        }
        placed += 6;
        if unread(&shop, "written").await > 0.0 {
            break;
        }
    }
    assert!(unread(&shop, "written").await > 0.0);
    assert_eq!(unread(&shop, "refused").await, 0.0);
    assert_eq!(shop.item_audit(&sku).await["sold"], placed);
    // Postgres tells its time to the batches with a read; the others add what has passed since.
    let out_of_time = "select count(*) from (
         select o.created_at < lag(o.created_at) over (partition by e.sku order by e.seq)
                or o.created_at > e.at as is_wrong
           from stock_ledger e join orders o on o.id = e.order_id where e.reason = 'order'
         ) as times where is_wrong";
    assert_eq!(shop.number(out_of_time).await, 0, "no order is older than the one before it");
    shop.assert_sound().await;
}

/// Under another strategy, which needs no lease: an order, and a restock without which the queued
/// order would be rejected.
#[tokio::test]
async fn foreign_write_between_two_batches_is_read() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for (stock, quantity, foreign, left) in [(10, 2, -3, 4), (5, 6, 10, 8)] {
        let refused = unread(&shop, "refused").await;
        for _ in 0..MAX_ATTEMPTS {
            let sku = shop.lab_item(stock).await;
            let write = async {
                let call = match foreign {
                    0.. => admin.restocks(&sku, foreign),
                    _ => admin.orders(&sku, -foreign),
                };
                call.lock("row-lock").ok().await;
            };
            let calls = vec![admin.orders(&sku, quantity)];
            for reply in send_behind_batch(&shop, &admin, &sku, calls, write).await {
                reply.succeeds(201);
            }
            let audit = shop.item_audit(&sku).await;
            assert_eq!((&audit["stock"], &audit["ok"]), (&left.into(), &true.into()), "{audit}");
            if unread(&shop, "refused").await > refused {
                break;
            }
        }
        assert!(unread(&shop, "refused").await > refused, "{foreign}");
    }
}

#[tokio::test]
async fn duplicate_in_a_batch_without_a_read_is_replayed() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(100_000, 100).await;
    let key = fresh_key();
    let first = admin.orders(&sku, 2).key(&key).await;
    let mut placed = 2;
    for _ in 0..MAX_ATTEMPTS {
        let calls = vec![admin.orders(&sku, 3), admin.orders(&sku, 2).key(&key)];
        let mut replies = send_behind_batch(&shop, &admin, &sku, calls, async {}).await;
        replies.pop().unwrap().replays(&first);
        replies.pop().unwrap().succeeds(201);
        placed += 4;
        if unread(&shop, "refused").await > 0.0 {
            break;
        }
    }
    assert!(unread(&shop, "refused").await > 0.0);
    assert_eq!(shop.item_audit(&sku).await["sold"], placed);
    shop.assert_sound().await;
}

/// An order is placed, and its response is lost. The next batches leave too little for another one
/// of that size: sent again, it inserts no key record that would be a duplicate.
#[tokio::test]
async fn duplicate_that_the_kept_row_would_reject_is_looked_up() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for (again, problem) in [(6, None), (7, Some("idempotency-key-mismatch"))] {
        let refused = unread(&shop, "refused").await;
        for _ in 0..MAX_ATTEMPTS {
            let sku = shop.shop_item(10, 100).await;
            let key = fresh_key();
            let first = admin.orders(&sku, 6).key(&key).await;
            let calls = vec![admin.orders(&sku, 1), admin.orders(&sku, again).key(&key)];
            let mut replies = send_behind_batch(&shop, &admin, &sku, calls, async {}).await;
            let repeated = replies.pop().unwrap();
            match problem {
                None => repeated.replays(&first),
                Some(problem) => assert_eq!(repeated.problem(), problem, "{repeated}"),
            };
            replies.pop().unwrap().succeeds(201);
            assert_eq!(shop.item_audit(&sku).await["sold"], 8);
            if unread(&shop, "refused").await > refused {
                break;
            }
        }
        assert!(unread(&shop, "refused").await > refused, "{again}");
    }
    shop.assert_sound().await;
}

/// The key of one order of a batch has a record in a transaction of another replica that stays open
/// for longer than a statement waits. The others of the batch do not fail with it.
#[tokio::test]
async fn open_transaction_with_a_key_fails_no_other_order() {
    let shop = TestShop::start(2).await;
    let admin = shop.sign_in("admin").await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(100_000, 100).await;
    for _ in 0..MAX_ATTEMPTS {
        let key = fresh_key();
        let elsewhere = alice.at(1).orders(&shop.lab_item(10).await, 1).lock("row-lock").key(&key);
        let open = shop.pause(&admin, elsewhere, "write").await;

        let calls = vec![admin.orders(&sku, 1), alice.orders(&sku, 1).key(&key)];
        let mut replies = send_behind_batch(&shop, &admin, &sku, calls, async {}).await;
        let repeated = replies.pop().unwrap();
        assert_eq!(repeated.problem(), "idempotency-key-mismatch", "{repeated}");
        replies.pop().unwrap().succeeds(201);
        shop.resume(&admin, open).await.succeeds(201);
        if unread(&shop, "refused").await > 0.0 {
            break;
        }
    }
    assert!(unread(&shop, "refused").await > 0.0);
    shop.assert_sound().await;
}

/// Postgres refuses one order of a batch without a read. The others of the batch do not fail with
/// it.
#[tokio::test]
async fn failed_order_fails_no_other_order_of_a_batch_without_a_read() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(100_000, 100).await;
    fail_some_orders(&shop).await;
    for _ in 0..MAX_ATTEMPTS {
        let calls = vec![admin.orders(&sku, 1), admin.orders(&sku, 1).key(&failing_key())];
        let mut replies = send_behind_batch(&shop, &admin, &sku, calls, async {}).await;
        replies.pop().unwrap().fails(500, "internal-error");
        replies.pop().unwrap().succeeds(201);
        if unread(&shop, "refused").await > 0.0 {
            break;
        }
    }
    assert!(unread(&shop, "refused").await > 0.0);
    shop.assert_sound().await;
}

/// Without the read, a request could not be paused at `held`, for instance.
#[tokio::test]
async fn watched_order_passes_every_point_behind_a_batch_of_its_lease() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    // With one, the order had the lease of the batch before it.
    let leases =
        "select count(distinct fence) from stock_ledger where sku = $1 and reason = 'order'";
    let mut used: i64 = 0;
    for _ in 0..MAX_ATTEMPTS {
        let sku = shop.shop_item(10, 100).await;
        let calls = vec![admin.orders(&sku, 1).traced()];
        let mut replies = send_behind_batch(&shop, &admin, &sku, calls, async {}).await;
        let order = replies.pop().unwrap().succeeds(201);
        let trace = order["trace"].as_array().unwrap().iter();
        let points: Vec<&str> = trace.map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(points, ["wait", "held", "read", "commit", "write", "committed", "release"]);
        used = sqlx::query_scalar(leases).bind(&sku).fetch_one(&shop.pool).await.unwrap();
        if used == 1 {
            break;
        }
    }
    assert_eq!(used, 1);
}

/// Of a change by hand the leader hears nothing: the row's version says it, under every column that
/// an order reads.
#[tokio::test]
async fn settings_changed_by_hand_hold_for_the_next_order() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for (change, outcome) in [
        ("update items set price_cents = 25000 where sku = $1", (201, "")),
        ("update items set limit_per_user = 3 where sku = $1", (409, "limit-reached")),
        ("update items set hidden = true where sku = $1", (404, "not-found")),
        ("update items set name = 'By hand' where sku = $1", (201, "")),
    ] {
        let refused = unread(&shop, "refused").await;
        for _ in 0..MAX_ATTEMPTS {
            let sku = shop.shop_item(10, 100).await;
            let by_hand = async {
                sqlx::query(change).bind(&sku).execute(&shop.pool).await.unwrap();
            };
            let calls = vec![admin.orders(&sku, 3)];
            let replies = send_behind_batch(&shop, &admin, &sku, calls, by_hand).await;
            let reply = &replies[0];
            assert_eq!(reply.outcome(), outcome, "{change}: {reply}");
            let by_hand = "select exists (select from order_lines where sku = $1
                            and (name = 'By hand' or unit_price_cents = 25000))";
            let by_hand: bool =
                sqlx::query_scalar(by_hand).bind(&sku).fetch_one(&shop.pool).await.unwrap();
            assert_eq!(by_hand, reply.status == 201, "{change}: {reply}");
            if change.contains("price_cents") {
                assert_eq!(reply.body["lines"][0]["unit_price_cents"], 25_000, "{reply}");
            }
            if unread(&shop, "refused").await > refused {
                break;
            }
        }
        assert!(unread(&shop, "refused").await > refused, "{change}");
    }
    shop.assert_sound().await;
}
