//! The limit per customer: exact under every strategy, checked when the order is placed, and free
//! again when an order is cancelled or refunded.

use futures_util::future::join_all;
use holdfast_shop::strategy::STRATEGIES;
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::{CONDITION_TIMEOUT, Call, TestShop, User, assert_has, fresh_key, until};
use serde_json::json;
use tokio::time::Instant;

pub const LIMIT: &str = "limit-reached";

/// Retries with one key until the outcome is final (a lost conflict or a lock timeout is not).
/// Returns whether it was ordered.
async fn ordered(order: impl Fn() -> Call) -> bool {
    let until = Instant::now() + CONDITION_TIMEOUT;
    loop {
        let reply = order().await;
        let body = &reply.body;
        match reply.outcome() {
            (201, _) => return true,
            (409, LIMIT) => {
                let number = |name: &str| body[name].as_i64().unwrap();
                assert!(number("already") <= number("limit"), "{reply}");
                assert!(number("already") + number("requested") > number("limit"), "{reply}");
                return false;
            }
            _ => assert_eq!(reply.status, 503, "{reply}"),
        }
        assert!(Instant::now() < until, "{reply}");
    }
}

/// Under `expire-only` each order takes a whole lease, so the lease is short.
pub fn under(strategy: &'static str) -> impl Fn(Call) -> Call + Copy {
    move |order| match strategy {
        "expire-only" => order.lock(strategy).ttl_ms(100),
        _ => order.lock(strategy),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn customer_limit_is_exact_under_every_strategy() {
    let shop = TestShop::start(2).await;
    let customers = shop.customers().await;
    // Under all strategies, also those that oversell; an item in units has no limit, and before
    // pre-deduct writes an order, it has not locked what the customer has.
    let limiting = STRATEGIES.iter().filter(|it| it.data_path.is_none());
    for strategy in limiting.map(|strategy| strategy.name) {
        let each = if strategy == "expire-only" { 4 } else { 8 };
        for limit in [1, 3] {
            let sku = shop.limited_item(true, 1_000, limit).await;
            let what = format!("{strategy}, limit {limit}");
            let orders = (0..each * 3).map(|n| {
                let (key, who) = (fresh_key(), &customers[n % 3]);
                let sku = &sku;
                async move {
                    let order = || under(strategy)(who.at(n / 3 % 2).orders(sku, 1).key(&key));
                    (n % 3, ordered(order).await)
                }
            });
            let outcomes = join_all(orders).await;
            for (n, who) in customers.iter().enumerate() {
                let sold = outcomes.iter().filter(|outcome| **outcome == (n, true)).count();
                assert_eq!(i64::try_from(sold).unwrap(), limit, "{what}: {}", who.name);
                assert_eq!(shop.has(who, &sku).await, limit, "{what}: {}", who.name);
            }
        }
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_several_items_keep_every_limit() {
    let shop = TestShop::start(2).await;
    let customers = shop.customers().await;
    for strategy in ["batched", "fenced", "row-lock", "atomic", "version"] {
        let (one, other) =
            (shop.limited_item(false, 500, 1).await, shop.limited_item(false, 500, 2).await);
        let free = shop.shop_item(500, 100).await;
        let baskets: [&[(&str, i64)]; 4] = [
            &[(&one, 1), (&free, 1), (&other, 1)],
            &[(&other, 1), (&one, 1)],
            &[(&other, 2)],
            &[(&one, 1), (&other, 1), (&free, 3)],
        ];
        let orders = (0..24).map(|n| {
            let (key, who, basket) = (fresh_key(), &customers[n % 3], baskets[n / 3 % 4]);
            async move {
                let order = || under(strategy)(who.at(n / 6 % 2).orders_all(basket).key(&key));
                ordered(order).await
            }
        });
        join_all(orders).await;
        for who in &customers {
            // Depends on the order of execution: two of `other` at once, or one and one.
            let (of_one, of_other) = (shop.has(who, &one).await, shop.has(who, &other).await);
            assert!(matches!((of_one, of_other), (1, 1) | (0, 2)), "{strategy} {}", who.name);
        }
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn customer_limit_holds_without_a_lock() {
    let shop = TestShop::start(2).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let admin = shop.sign_in("admin").await;
    let sku = shop.limited_item(true, 10, 1).await;
    let order = |who: &User, at| under("none")(who.at(at).orders(&sku, 1));
    // All three have read the same stock before anything was committed.
    let third = shop.pause(&admin, order(&bob, 1), "read").await;
    let first = shop.pause(&admin, order(&alice, 0), "write").await;
    let second = order(&alice, 1).send();
    // It waits to write the row that the first has written, and has not counted yet.
    until("the second waits for the row", async || shop.waiting_sessions().await == 1).await;
    shop.resume(&admin, first).await.succeeds(201);
    let rejected = second.fails(409, LIMIT).await;
    assert_eq!(rejected["already"], 1);
    shop.resume(&admin, third).await.succeeds(201);
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["sold"], &audit["stock"]), (&json!(2), &json!(9)), "an update was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_counts_its_own_orders_toward_limit() {
    let shop = TestShop::start(1).await;
    let [alice, bob, carol] = shop.customers().await;
    let sku = shop.limited_item(false, 8, 3).await;
    let before = carol.orders(&sku, 1).ok().await;
    assert_eq!(before["lines"][0]["stock"]["after"], 7);
    let mut barrier = Barrier::before_item(&shop, &sku).await;
    // User, quantity, earlier purchases (or the stock if it is sold out), and whether it is placed.
    let cases: [(&User, i64, Result<i64, i64>, bool); 10] = [
        (&alice, 2, Ok(0), true),
        (&bob, 1, Ok(0), true),
        (&alice, 2, Ok(2), false),
        (&carol, 3, Ok(1), false),
        (&alice, 1, Ok(2), true),
        (&alice, 1, Ok(3), false),
        (&bob, 3, Ok(1), false),
        (&carol, 2, Ok(1), true),
        // One unit is left: sold out for a quantity of two, independent of earlier purchases.
        (&alice, 2, Err(1), false),
        (&bob, 1, Ok(1), true),
    ];
    let mut sent = Vec::new();
    for (who, many, ..) in cases {
        sent.push(who.orders(&sku, many).send());
        barrier.until_queued(sent.len()).await;
    }
    barrier.open().await;
    for ((who, many, expected, sold), sent) in cases.into_iter().zip(sent) {
        let reply = sent.await;
        let what = format!("{} {many}: {reply}", who.name);
        match expected {
            _ if sold => assert_eq!(reply.status, 201, "{what}"),
            Ok(already) => {
                let rejected = reply.fails(409, "limit-reached");
                let fields = ["sku", "limit", "already", "requested"].map(|name| &rejected[name]);
                assert_eq!(
                    fields,
                    [&json!(sku), &json!(3), &json!(already), &json!(many)],
                    "{what}"
                );
            }
            Err(available) => {
                let rejected = reply.fails(409, "sold-out");
                assert_eq!(rejected["available"], available, "{what}");
            }
        }
    }
    assert_eq!(shop.order_transactions().await, 2, "carol's, and the batch");
    let has = [shop.has(&alice, &sku).await, shop.has(&bob, &sku).await];
    assert_eq!((has, shop.has(&carol, &sku).await), ([3, 2], 3));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_refunded_units_are_free_again() {
    let shop = TestShop::start(2).await;
    let alice = shop.promoted("alice").await;
    for strategy in ["batched", "fenced", "row-lock", "atomic", "version"] {
        let sku = shop.limited_item(false, 50, 2).await;
        let place = |key: &str, many| under(strategy)(alice.orders(&sku, many).key(key));
        let (first, second, third) = (fresh_key(), fresh_key(), fresh_key());
        let order = place(&first, 2).succeeds(201).await;
        let rejected = || async {
            let body = place(&second, 1).fails(409, "limit-reached").await;
            assert_eq!(body["already"], 2);
        };
        rejected().await;
        alice.pays(&order).ok().await;
        rejected().await;
        // A finished key is looked up before the limit is checked.
        let again = place(&first, 2).await;
        assert!(again.is_replayed());
        assert_eq!(again.succeeds(201), order);
        alice.refunds(&order).ok().await;
        // A rejection is not stored: the same key succeeds now.
        let one = place(&second, 1).succeeds(201).await;
        place(&third, 2).fails(409, "limit-reached").await;
        alice.cancels(&one).ok().await;
        place(&third, 2).succeeds(201).await;
        assert_eq!(shop.has(&alice, &sku).await, 2);
        assert_eq!(shop.item_audit(&sku).await["stock"], 48);
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_beyond_limit_changes_nothing() {
    let shop = TestShop::start(1).await;
    let alice = shop.promoted("alice").await;
    for strategy in ["batched", "fenced", "row-lock", "atomic", "version"] {
        let (limited, free) =
            (shop.limited_item(false, 10, 2).await, shop.shop_item(10, 100).await);
        let entries = shop.number("select count(*) from stock_ledger").await;
        let keys = shop.number("select count(*) from idempotency").await;
        for lines in [&[(&*free, 4), (&*limited, 3)][..], &[(&*limited, 2), (&*limited, 1)]] {
            let order = alice.orders_all(lines);
            let body = under(strategy)(order).fails(409, "limit-reached").await;
            assert_has(&body, json!({ "sku": limited, "requested": 3 }));
        }
        // Sold out takes precedence, in every line.
        let short = alice.orders_all(&[(&limited, 3), (&free, 11)]);
        under(strategy)(short).fails(409, "sold-out").await;
        assert_eq!(shop.number("select count(*) from stock_ledger").await, entries, "{strategy}");
        assert_eq!(shop.number("select count(*) from idempotency").await, keys, "{strategy}");
        assert_eq!(shop.item_audit(&free).await["stock"], 10);
    }
    assert_eq!(shop.number("select count(*) from order_lines").await, 0);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sold_out_precedes_customer_limit() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let sku = shop.limited_item(false, 1, 1).await;
    alice.orders(&sku, 1).ok().await;
    // From the queue, then from the sold-out cache, which does not check the limit.
    for who in [&alice, &bob, &alice, &alice] {
        who.orders(&sku, 1).fails(409, "sold-out").await;
    }
    // As many as the next order wants: it is not sold out, though it was when last looked up.
    shop.restock(&sku, 1).await;
    alice.orders(&sku, 1).fails(409, LIMIT).await;
    bob.orders(&sku, 1).ok().await;
    shop.assert_sound().await;
}
