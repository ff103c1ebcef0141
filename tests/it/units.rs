//! Items in units (strategy `units`): each unit is sold once and comes back once, also when orders
//! and cancellations meet; what such an item rejects; what a plan reads; what the audit finds.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_shop::command::Command as _;
use holdfast_shop::command::place_order::PlaceOrder;
use holdfast_shop::command::state::ShopState;
use holdfast_shop::model::RequestedLine;
use holdfast_shop::store::changed_rows::ChangedRows;
use holdfast_shop::store::read::{self, ReadRequest};
use holdfast_shop::store::{BatchWrite, CommandWrite, WriteResult, purge_lab_item};
use holdfast_shop::strategy::data_path::DataPath as _;
use holdfast_shop::strategy::units::path::Units;
use holdfast_shop::{IdempotencyKey, OrderId, RequestContext, Sku, Strategy, UserId, engine};
use holdfast_testkit::proxy::{self, Traffic};
use holdfast_testkit::{Call, TestShop, User, assert_has, fresh_key, id_of, until};
use serde_json::{Value, json};
use sqlx::{Executor as _, PgConnection};
use uuid::Uuid;

use crate::order_expiry::JOBS_ON;
use crate::outages::shop_behind;

const FREE: &str = "select count(*) from item_units where order_id is null";
const TAKEN: &str = "select count(*) from item_units where order_id is not null";

async fn item_in_units(shop: &TestShop, stock: i64) -> String {
    let admin = shop.sign_in("admin").await;
    let item = admin.creates_lab_item(&json!({ "stock": stock, "in_units": true })).ok().await;
    item["sku"].as_str().unwrap().to_owned()
}

fn order(who: &User, sku: &str, quantity: i64) -> Call {
    who.orders(sku, quantity).lock("units")
}

/// Asserts that item and ledger add up, that no unit was sold twice, and that the page agrees.
async fn assert_sound(shop: &TestShop, sku: &str, sold: i64, stock: i64) {
    let audit = shop.item_audit(sku).await;
    let expected = json!({ "ok": true, "sold": sold, "stock": stock, "drift": 0, "breaks": 0,
                           "oversold": 0, "forks": [] });
    assert_has(&audit, expected);
    assert_eq!(shop.stock(sku).await, stock);
    let mut db = shop.pool.acquire().await.unwrap();
    let sku = Sku::try_from(sku.to_owned()).unwrap();
    let summary = holdfast_shop::audit::summary(&mut db, &sku).await.unwrap().unwrap();
    assert!(summary.adds_up(), "{summary:?}");
    assert_eq!((summary.sold, summary.stock, summary.oversold), (sold, stock, 0));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_are_sold_once() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = item_in_units(&shop, 20).await;
    let sent = (0..50).map(|n| order(&alice.at(n % 2), &sku, 1).send());
    let placed = join_all(sent).await.into_iter().filter(|reply| reply.status == 201);
    assert_eq!(placed.count(), 20);
    order(&alice, &sku, 1).fails(409, "sold-out").await;
    assert_sound(&shop, &sku, 20, 0).await;
    let per_unit = "select count(*) from (select unit from unit_ledger group by unit
                     having count(*) = 1 and sum(before) = 1 and sum(after) = 0) as sold_once";
    assert_eq!(shop.number(per_unit).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellations_beside_orders_lose_no_unit() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = item_in_units(&shop, 6).await;
    let buyers = (0..12).map(|n| {
        let (alice, sku) = (alice.at(n % 2), &sku);
        async move {
            let mut kept = 0;
            for turn in 0..8 {
                let quantity = 1 + i64::try_from((n + turn) % 3).unwrap();
                let reply = order(&alice, sku, quantity).await;
                if reply.status != 201 {
                    reply.fails(409, "sold-out");
                } else if turn % 4 == 3 {
                    kept += quantity;
                } else {
                    alice.cancels(&reply.ok()).ok().await;
                }
            }
            kept
        }
    });
    let kept: i64 = join_all(buyers).await.into_iter().sum();
    assert_eq!(shop.number(TAKEN).await, kept);
    assert_sound(&shop, &sku, kept, 6 - kept).await;
    let returned = "select count(*) from unit_ledger where reason = 'cancel'";
    assert!(shop.number(returned).await > 0);
}

/// An order that has locked the last unit makes others wait for nothing. They are rejected, and the
/// unit is free again when it gives up.
#[tokio::test(flavor = "multi_thread")]
async fn sold_out_is_not_final_while_units_are_held() {
    let mut shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in_at(1, "alice").await, shop.sign_in("admin").await);
    let sku = item_in_units(&shop, 1).await;
    order(&alice.at(0), &sku, 1).pause("read").send();
    shop.until_one_is_paused(&admin, "read").await;
    let rejected = order(&alice, &sku, 1).fails(409, "sold-out").await;
    assert_eq!(rejected["available"], 0, "{rejected}");
    assert_eq!(shop.waiting_sessions().await, 0);
    assert_eq!(shop.number(FREE).await, 1, "none is sold");

    shop.replicas[0].kill();
    until("its unit is free again", async || order(&alice, &sku, 1).await.status == 201).await;
    let audit = shop.item_audit_at(1, &sku).await;
    assert_has(&audit, json!({ "ok": true, "sold": 1, "stock": 0 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_return_gives_back_its_own_units() {
    let settings = [JOBS_ON, ("HOLDFAST_PAY_WITHIN_S", "2")];
    let shop = TestShop::start_with(1, &settings).await;
    let alice = shop.sign_in("alice").await;
    let (sku, other) = (item_in_units(&shop, 9).await, item_in_units(&shop, 9).await);
    let whole = shop.lab_item(9).await;
    let paid = order(&alice, &sku, 3).key("the-key-of-three-units").ok().await;
    let stock = &paid["lines"][0]["stock"];
    assert_eq!(stock, &json!({ "before": 3, "delta": -3, "after": 0 }));
    let again = order(&alice, &sku, 3).key("the-key-of-three-units").await;
    assert!(again.is_replayed());
    assert_eq!(&alice.order(&paid).await["lines"][0]["stock"], stock);
    let ledger = alice.reads(&format!("/api/items/{sku}/ledger")).await;
    assert_eq!(ledger["items"].as_array().unwrap().len(), 1 + 3, "{ledger}");
    alice.pays(&paid).ok().await;
    let both = alice.orders_all(&[(&sku, 2), (&other, 1)]).lock("units").ok().await;
    alice.cancels(&both).ok().await;
    alice.cancels(&both).fails(409, "order-state").await;

    // These three expire: in units, not in units, and of two items in units.
    order(&alice, &sku, 2).ok().await;
    alice.orders(&whole, 2).ok().await;
    alice.orders_all(&[(&sku, 1), (&other, 4)]).lock("units").ok().await;
    shop.until_no_order_is_pending().await;
    assert_eq!((shop.number(TAKEN).await, shop.stock(&whole).await), (3, 9));
    alice.refunds(&paid).ok().await;
    assert_eq!(alice.reads("/api/me").await["lab_balance_cents"], 100_000);
    for item in [&sku, &other] {
        assert_sound(&shop, item, 0, 9).await;
    }
    let twice = "select count(*) from (select from unit_ledger
                  group by order_id, unit, sku, reason having count(*) > 1) as returned";
    assert_eq!(shop.number(twice).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn item_in_units_rejects_what_needs_its_row() {
    let mut shop = TestShop::start(1).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    let sku = item_in_units(&shop, 5).await;
    let whole = shop.lab_item(5).await;
    let rejected = [
        (alice.orders(&sku, 1), 403, "forbidden", "Holdfast-Lock: units"),
        (alice.orders(&sku, 1).lock("row-lock"), 403, "forbidden", "Holdfast-Lock: units"),
        (order(&alice, &whole, 1), 403, "forbidden", "in_units"),
        (order(&alice, "deadbolt", 1), 403, "forbidden", "in_units"),
        (alice.orders_all(&[(&sku, 1), (&whole, 1)]), 422, "invalid-request", "place two orders"),
        (order(&alice, &sku, 6), 409, "sold-out", "5"),
        (
            alice.orders_all(&[(&sku, 600), (&sku, 600)]).lock("units"),
            422,
            "invalid-request",
            "1000 units",
        ),
        (admin.restocks(&sku, 5), 403, "forbidden", "keeps the units"),
        (admin.sets_limit(&sku, 2), 403, "forbidden", "keeps the units"),
        (admin.edits(&sku, &json!({ "price_cents": 5 })), 403, "forbidden", "keeps the units"),
    ];
    for (call, status, kind, why) in rejected {
        let problem = call.fails(status, kind).await;
        assert!(problem.to_string().contains(why), "{why}: {problem}");
    }
    for item in [
        json!({ "stock": 0, "in_units": true }),
        json!({ "stock": 100_001, "in_units": true }),
        json!({ "stock": 5, "limit_per_user": 1, "in_units": true }),
    ] {
        admin.creates_lab_item(&item).fails(422, "invalid-request").await;
    }
    assert_sound(&shop, &sku, 0, 5).await;

    let output = shop.try_start_rejected(&[], &[("HOLDFAST_LOCK", "units")]);
    assert!(output.contains("the lock units sells only items in units"), "{output}");
}

/// Five orders are in one transaction, which expires all but a paid one, and the sixth's unit is
/// locked.
#[tokio::test]
async fn orders_that_expired_before_a_failure_are_reported() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = item_in_units(&shop, 6).await;
    let mut due = Vec::new();
    for _ in 0..6 {
        let placed = id_of(&order(&alice, &sku, 1).ok().await).parse().unwrap();
        due.push((OrderId(placed), vec![(Sku::try_from(sku.clone()).unwrap(), 1)]));
    }
    let (first, last) = due.split_at(5);
    // The paid one has the first unit of those that are locked together.
    let paid = sqlx::query_scalar(
        "select order_id from item_units where order_id <> $1 order by unit limit 1",
    );
    let paid = OrderId(paid.bind(last[0].0.0).fetch_one(&shop.pool).await.unwrap());
    alice.pays(paid).ok().await;
    shop.execute("update orders set expires_at = now()").await;
    let expected = first.iter().map(|(order, _)| *order).filter(|order| *order != paid);
    let expected: BTreeSet<OrderId> = expected.collect();
    let mut tx = begin(&shop).await;
    let lock = sqlx::query("select from item_units where order_id = $1 for update");
    lock.bind(last[0].0.0).execute(&mut *tx).await.unwrap();

    let here = shop.in_process("batched");
    let expire = async || {
        let context = RequestContext::new(&here, Uuid::now_v7());
        engine::expire_orders(&here, &context, due.clone()).await
    };
    assert_eq!(expire().await.unwrap(), expected);
    tx.rollback().await.unwrap();
    assert_eq!(expire().await.unwrap(), [last[0].0].into());
    let kept = "select count(*) from item_units u join orders o on o.id = u.order_id
                 where o.status = 'paid'";
    assert_eq!(shop.number(kept).await, 1, "each order returned its own unit");
    assert_sound(&shop, &sku, 1, 5).await;
}

/// The purge waits for an order in flight, which has locked a unit and not the item.
#[tokio::test]
async fn purge_waits_for_order_of_units() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = item_in_units(&shop, 5).await;
    let paused = shop.pause(&admin, order(&alice, &sku, 1), "commit").await;
    let committed = async {
        until("the purge waits", async || shop.waiting_sessions().await == 1).await;
        shop.resume(&admin, paused).await.ok()
    };
    let (pool, item) = (shop.pool.clone().into(), Sku::try_from(sku.clone()).unwrap());
    let (purged, placed) =
        futures_util::join!(purge_lab_item(&pool, &item, item.as_str()), committed);
    assert!(!purged.unwrap());
    assert_sound(&shop, &sku, 1, 4).await;

    alice.cancels(&placed).ok().await;
    assert!(purge_lab_item(&pool, &item, item.as_str()).await.unwrap());
    let left = "select (select count(*) from item_units) + (select count(*) from unit_ledger)";
    assert_eq!(shop.number(left).await, 0);
    shop.assert_sound().await;
}

/// Only a commit that was sent may have happened: a write that fails before it did not.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_lost_commit_is_unknown() {
    for (point, outcome) in [("read", Value::Null), ("commit", json!("unknown"))] {
        let postgres = proxy::to_postgres().await;
        let shop = shop_behind(Some(&postgres), None).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = item_in_units(&shop, 5).await;
        let key = fresh_key();
        let sent = order(&alice, &sku, 2).key(&key).pause(&format!("{point}:1000")).send();
        shop.until_one_is_paused(&admin, point).await;
        postgres.cut().await;
        let body = sent.fails(503, "unavailable").await;
        assert_eq!(body["outcome"], outcome, "{point}: {body}");
        postgres.set(Traffic::Forwarded);
        until("the same key succeeds", async || {
            order(&alice, &sku, 2).key(&key).await.status == 201
        })
        .await;
        assert_sound(&shop, &sku, 2, 3).await;
    }
}

async fn begin(shop: &TestShop) -> sqlx::Transaction<'static, sqlx::Postgres> {
    shop.pool.begin().await.unwrap()
}

fn one_of(sku: &Sku, user: UserId) -> PlaceOrder {
    let key = IdempotencyKey::generate();
    let line = RequestedLine { sku: sku.clone(), quantity: 1 };
    PlaceOrder::new(user, key, &[line], None, Duration::from_mins(1)).unwrap()
}

async fn read_one(db: &mut PgConnection, command: &PlaceOrder) -> ShopState {
    let request = ReadRequest { reads: command.reads(), ..ReadRequest::default() };
    let mut snapshot = read::read(db, &request).await.unwrap();
    Units.read(db, vec![command], &mut snapshot).await.unwrap();
    snapshot.state
}

fn write_of(command: &PlaceOrder, before: ShopState) -> BatchWrite {
    let mut after = before.clone();
    let changes = command.decide(&mut after).unwrap();
    let strategy = Strategy::named("units").unwrap();
    let guards = holdfast_lock::Guards::default();
    let rows = ChangedRows::between(&before, &after, strategy.guard, &strategy.exclusion(&guards));
    let response = changes.stored_response().unwrap();
    let write = CommandWrite {
        position: 0,
        idempotency: command.idempotency().clone(),
        changes,
        response,
        request_id: Uuid::now_v7(),
    };
    BatchWrite { rows: rows.unwrap(), now: before.now, commands: vec![write], is_unread: false }
}

/// A write whose unit was sold, or sold and given back, since it was read: it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn write_of_a_changed_unit_matches_nothing() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = item_in_units(&shop, 1).await;
    let item = Sku::try_from(sku.clone()).unwrap();
    let user = shop.user_id("alice").await;

    for gives_back in [false, true] {
        let command = one_of(&item, user);
        let mut tx = begin(&shop).await;
        let late = write_of(&command, read_one(&mut tx, &command).await);
        tx.rollback().await.unwrap();

        let sold = order(&alice, &sku, 1).ok().await;
        if gives_back {
            alice.cancels(&sold).ok().await;
        }
        let mut tx = begin(&shop).await;
        let written = Units.write(&mut tx, &late).await.unwrap();
        assert_eq!(written, WriteResult::RowChanged);
        tx.commit().await.unwrap();
        if !gives_back {
            alice.cancels(&sold).ok().await;
        }
    }
    assert_sound(&shop, &sku, 0, 1).await;
}

/// Whether an order was placed is not looked up before the transaction that may place it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_outcome_is_final_behind_its_transaction() {
    let shop = TestShop::start(1).await;
    let sku = Sku::try_from(item_in_units(&shop, 1).await).unwrap();
    let command = one_of(&sku, shop.user_id("alice").await);
    let mut tx = begin(&shop).await;
    let write = write_of(&command, read_one(&mut tx, &command).await);
    assert_eq!(Units.write(&mut tx, &write).await.unwrap(), WriteResult::Done);

    let committed = async {
        until("it waits for the commit", async || shop.waiting_sessions().await == 1).await;
        tx.commit().await.unwrap();
    };
    let mut db = shop.pool.acquire().await.unwrap();
    let (is_final, ()) = futures_util::join!(Units.invalidate(&mut db, &write), committed);
    assert!(is_final.unwrap());
    assert_sound(&shop, sku.as_str(), 1, 0).await;
}

/// Under a plan for any number of units, and before any statistics.
#[tokio::test(flavor = "multi_thread")]
async fn locking_a_unit_reads_few_rows() {
    let shop = TestShop::start(1).await;
    let sku = Sku::try_from(item_in_units(&shop, 20_000).await).unwrap();
    let command = one_of(&sku, UserId(Uuid::nil()));
    let sell = "update item_units set order_id = gen_random_uuid() where unit % 100 <> 0";
    shop.execute(sell).await;
    shop.execute("vacuum item_units").await;
    let mut tx = begin(&shop).await;
    tx.execute("set local plan_cache_mode = force_generic_plan").await.unwrap();
    let before = rows_read(&mut tx).await;
    for _ in 0..50 {
        let state = read_one(&mut tx, &command).await;
        assert_eq!(state.items[&sku].stock, 1);
        assert_eq!(state.units[&sku][0].unit % 100, 0);
    }
    let read = rows_read(&mut tx).await - before;
    assert!(read <= 50, "{read} rows for 50 units");
    tx.rollback().await.unwrap();

    // Nor does one that finds none read the sold ones, while vacuum has not removed them.
    shop.execute("update item_units set order_id = null").await;
    shop.execute("vacuum analyze item_units").await;
    shop.execute("update item_units set order_id = gen_random_uuid()").await;
    for analyzed in ["select 1", "analyze item_units"] {
        shop.execute(analyzed).await;
        let mut tx = begin(&shop).await;
        let before = rows_read(&mut tx).await;
        assert_eq!(read_one(&mut tx, &command).await.items[&sku].stock, 0);
        assert_eq!(rows_read(&mut tx).await - before, 0, "{analyzed}");
    }
}

/// The rows of units that the session has read.
async fn rows_read(db: &mut PgConnection) -> i64 {
    let read = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
                  from pg_stat_xact_user_tables where relname = 'item_units'";
    sqlx::query_scalar(read).fetch_one(db).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_finds_unit_that_was_sold_twice() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = item_in_units(&shop, 3).await;
    for _ in 0..3 {
        order(&alice, &sku, 1).ok().await;
    }
    assert_sound(&shop, &sku, 3, 0).await;

    // As if the give-back of one had left no entry.
    shop.execute(
        "update item_units set order_id = null
          where unit = 2 and version = (select version from item_units where unit = 2)",
    )
    .await;
    assert_has(&shop.item_audit(&sku).await, json!({ "ok": false, "drift": 1, "breaks": 0 }));
    order(&alice, &sku, 1).ok().await;
    let audit = shop.item_audit(&sku).await;
    assert_has(&audit, json!({ "ok": false, "sold": 4, "oversold": 1, "breaks": 1, "drift": 1 }));
    assert_eq!(audit["forks"], json!([]));

    // Nor do the page's figures add up if an order is cancelled and keeps its unit.
    let mut db = shop.pool.acquire().await.unwrap();
    let item = Sku::try_from(sku.clone()).unwrap();
    let unaccounted = async |db: &mut PgConnection| {
        let summary = holdfast_shop::audit::summary(db, &item).await.unwrap().unwrap();
        summary.unaccounted()
    };
    let before = unaccounted(&mut db).await;
    shop.execute(
        "update orders set status = 'cancelled'
          where id = (select order_id from item_units where unit = 1)",
    )
    .await;
    assert_eq!(unaccounted(&mut db).await, before + 1);

    // As if both had been computed from the same read.
    shop.execute(
        "update unit_ledger set version = (select min(version) from unit_ledger where unit = 2)
          where unit = 2",
    )
    .await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["forks"].as_array().unwrap().len(), 1, "{audit}");
}
