//! `expected_total_cents`: an order never costs more than its customer expects, whoever raises the
//! price and when; a lower price is passed on, and a finished key is replayed whatever it expects.

use futures_util::future::join_all;
use holdfast_shop::strategy::STRATEGIES;
use holdfast_testkit::{Call, TestShop, User, assert_has, fresh_key, until};
use serde_json::{Value, json};

use crate::customer_limits::under;
use crate::delegation::forwarded;
use crate::kept_row::send_behind_batch;

const PROBLEM: &str = "price-changed";
/// The price of the items of a test.
const PRICE: i64 = 100;

/// An order of `quantity` units that expects that total.
fn expecting(who: &User, sku: &str, quantity: i64, total_cents: impl Into<Value>) -> Call {
    let lines = [json!({ "sku": sku, "quantity": quantity })];
    let body = json!({ "lines": lines, "expected_total_cents": total_cents.into() });
    who.post("/api/orders").json(&body).status(201)
}

async fn set_price(admin: &User, sku: &str, cents: i64) {
    admin.edits(sku, &json!({ "price_cents": cents })).ok().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raised_price_is_refused_and_lowered_one_passed_on() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.shop_item(50, PRICE).await;
    set_price(&admin, &sku, 25_000).await;

    let key = fresh_key();
    let refused = expecting(&alice, &sku, 3, 300).key(&key).fails(409, PROBLEM).await;
    assert_has(&refused, json!({ "expected_total_cents": 300, "total_cents": 75_000 }));
    // Nothing is stored: the same key may accept the price.
    let stored = "select count(*) from idempotency where path = '/api/orders'";
    assert_eq!(shop.number(stored).await, 0);
    let accepted = expecting(&alice.at(1), &sku, 3, 75_000).key(&key).ok().await;
    assert_eq!(accepted["total_cents"], 75_000);
    assert_eq!(alice.orders(&sku, 1).ok().await["total_cents"], 25_000, "without an expectation");

    set_price(&admin, &sku, 60).await;
    let cheaper = expecting(&alice, &sku, 2, 75_000).ok().await;
    assert_has(&cheaper, json!({ "total_cents": 120 }));
    assert_eq!(cheaper["lines"][0]["unit_price_cents"], 60);

    // The sum counts: one line rises, and another one falls.
    let lines = [json!({ "sku": sku, "quantity": 1 }), json!({ "sku": "key-ring", "quantity": 1 })];
    let both = |cents: i64| {
        let body = json!({ "lines": lines, "expected_total_cents": cents });
        alice.post("/api/orders").json(&body).status(201)
    };
    both(709).fails(409, PROBLEM).await;
    assert_eq!(both(710).ok().await["total_cents"], 710);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expectation_is_an_amount() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    for bad in [json!(-1), json!(50_000_000_000_001_i64), json!(6.5), json!("650")] {
        let rejected = expecting(&alice, "key-ring", 1, bad.clone()).succeeds(422).await;
        assert_eq!(rejected["errors"][0]["field"], "expected_total_cents", "{bad}: {rejected}");
    }
    for good in [json!(650), json!(50_000_000_000_000_i64), Value::Null] {
        expecting(&alice, "key-ring", 1, good).ok().await;
    }
    shop.execute("update items set price_cents = 0 where sku = 'key-ring'").await;
    expecting(&alice, "key-ring", 1, 0).ok().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_key_is_replayed_whatever_it_expects() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.shop_item(50, PRICE).await;
    let key = fresh_key();
    let first = expecting(&alice, &sku, 1, PRICE).key(&key).await;
    assert_eq!(first.status, 201, "{first}");

    for price in [PRICE, 25_000] {
        set_price(&admin, &sku, price).await;
        for expected in [json!(0), json!(PRICE), json!(99_999), Value::Null] {
            for at in [0, 1] {
                expecting(&alice.at(at), &sku, 1, expected.clone()).key(&key).await.replays(&first);
            }
        }
        alice.orders(&sku, 1).key(&key).await.replays(&first);
    }
    expecting(&alice, &sku, 2, 0).key(&key).fails(422, "idempotency-key-mismatch").await;
    assert_eq!(shop.item_audit(&sku).await["sold"], 1);
}

/// Each order of a batch expects something else; the price is raised by hand while the batch before
/// it is under way, so that its leader knows the row with the old price.
#[tokio::test(flavor = "multi_thread")]
async fn batch_decides_on_each_expectation() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for new_price in [PRICE, 3 * PRICE] {
        let sku = shop.shop_item(100_000, PRICE).await;
        let expectations: [Option<i64>; 6] =
            [None, Some(0), Some(PRICE), Some(3 * PRICE - 1), Some(3 * PRICE), Some(10 * PRICE)];
        let calls = expectations.map(|expected| match expected {
            Some(cents) => expecting(&admin, &sku, 1, cents),
            None => admin.orders(&sku, 1),
        });
        let raise = async {
            let raise = sqlx::query("update items set price_cents = $2 where sku = $1");
            raise.bind(&sku).bind(new_price).execute(&shop.pool).await.unwrap();
        };
        let replies = send_behind_batch(&shop, &admin, &sku, calls.to_vec(), raise).await;
        for (expected, reply) in expectations.into_iter().zip(replies) {
            match expected {
                Some(cents) if cents < new_price => {
                    let refused = reply.fails(409, PROBLEM);
                    let totals = json!({ "expected_total_cents": cents, "total_cents": new_price });
                    assert_has(&refused, totals);
                }
                _ => assert_eq!(reply.succeeds(201)["total_cents"], new_price, "{expected:?}"),
            }
        }
    }
    shop.assert_sound().await;
}

/// The price of a row that a leader keeps between batches is raised by hand.
#[tokio::test(flavor = "multi_thread")]
async fn kept_row_is_not_sold_at_its_old_price() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    for _ in 0..10 {
        let sku = shop.shop_item(100_000, PRICE).await;
        let raise = async {
            let raise = sqlx::query("update items set price_cents = 777 where sku = $1");
            raise.bind(&sku).execute(&shop.pool).await.unwrap();
        };
        let calls = vec![admin.orders(&sku, 1), expecting(&admin, &sku, 1, 777)];
        for reply in send_behind_batch(&shop, &admin, &sku, calls, raise).await {
            assert_eq!(reply.succeeds(201)["total_cents"], 777);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_order_carries_its_expectation() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, PRICE).await;
    until("orders with an expectation are executed and rejected by another replica", async || {
        let orders = (0..40).map(|n| {
            let expected = if n % 4 < 2 { PRICE } else { PRICE - 1 };
            expecting(&alice.at(n % 2), &sku, 1, expected).send()
        });
        for (n, reply) in join_all(orders).await.into_iter().enumerate() {
            match n % 4 < 2 {
                true => drop(reply.succeeds(201)),
                false => {
                    let totals = json!({ "expected_total_cents": 99, "total_cents": 100 });
                    assert_has(&reply.fails(409, PROBLEM), totals);
                }
            }
        }
        let both = |result: &'static str| {
            let shop = &shop;
            async move { forwarded(shop, 0, result).await + forwarded(shop, 1, result).await }
        };
        both("executed").await > 0.0 && both("rejected").await > 0.0
    })
    .await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expectation_holds_under_every_strategy() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    for strategy in STRATEGIES {
        let name = strategy.name;
        let in_units = strategy.has_own_items();
        let item = json!({ "stock": 5, "price_cents": PRICE, "in_units": in_units });
        let item = admin.creates_lab_item(&item).ok().await;
        let sku = item["sku"].as_str().unwrap();
        let order = |quantity, cents| under(name)(expecting(&alice, sku, quantity, cents));

        order(5, 5 * PRICE - 1).fails(409, PROBLEM).await;
        // What is sold out is so at any price.
        order(6, 0).fails(409, "sold-out").await;
        // Nothing was kept of the rejected ones: all units are there.
        let placed = order(5, 5 * PRICE).ok().await;
        assert_eq!(placed["total_cents"], 5 * PRICE, "{name}");
    }
}

/// The price rises and falls, by an admin and by hand, while orders come to both replicas.
#[tokio::test(flavor = "multi_thread")]
async fn no_order_costs_more_than_expected_while_prices_change() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    for strategy in ["batched", "fenced", "row-lock", "atomic", "version"] {
        let sku = shop.shop_item(100_000, PRICE).await;
        let change = async {
            for round in 0..20 {
                let cents = PRICE + round % 2;
                if round % 4 < 2 {
                    // Under `version` it may find a newer row each time.
                    until("the admin sets the price", async || {
                        let set = json!({ "price_cents": cents });
                        admin.at(1).edits(&sku, &set).await.status == 200
                    })
                    .await;
                } else {
                    let by_hand = sqlx::query("update items set price_cents = $2 where sku = $1");
                    by_hand.bind(&sku).bind(cents).execute(&shop.pool).await.unwrap();
                }
            }
        };
        let buy = async {
            let mut sold = 0;
            for _ in 0..8 {
                let orders = (0..10)
                    .map(|n| under(strategy)(expecting(&alice.at(n % 2), &sku, 1, PRICE)).send());
                for reply in join_all(orders).await {
                    match reply.outcome() {
                        (201, _) => {
                            assert_eq!(reply.body["total_cents"], PRICE, "{strategy}: {reply}");
                            sold += 1;
                        }
                        (409, PROBLEM) | (503, _) => {}
                        _ => panic!("{strategy}: {reply}"),
                    }
                }
            }
            sold
        };
        let (sold, ()) = futures_util::join!(buy, change);
        assert!(sold > 0, "{strategy}");
    }
    // What was compared is what is recorded.
    let dearer = "select count(*) from order_lines where unit_price_cents > 100";
    assert_eq!(shop.number(dearer).await, 0);
    shop.assert_sound().await;
}
