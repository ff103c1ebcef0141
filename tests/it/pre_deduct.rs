//! `pre-deduct`: exact while nothing fails; what a fault between Redis and Postgres costs, in
//! units; and that a reconciliation with the ledger repairs it.

use std::time::Duration;

use holdfast_shop::command::return_order::{Return, ReturnedBy};
use holdfast_shop::engine;
use holdfast_shop::store::{oldest_kept, purge_lab_item};
use holdfast_shop::strategy::pre_deduct::reconcile::reconcile;
use holdfast_shop::strategy::pre_deduct::statements::settle;
use holdfast_shop::{OrderId, RequestContext, Sku, UserId};
use holdfast_testkit::barrier::own_redis;
use holdfast_testkit::pause_points::PausedCall;
use holdfast_testkit::topology::{free_ports, query};
use holdfast_testkit::{Call, TestShop, User, assert_has, id_of, until};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

const STOCK: i64 = 8;
/// The orders that a fault meets between the counter and Postgres.
const ON_THEIR_WAY: usize = 3;

struct Lab {
    shop: TestShop,
    alice: User,
    admin: User,
    sku: String,
}

impl Lab {
    async fn new(shop: TestShop) -> Self {
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(STOCK).await;
        Self { shop, alice, admin, sku }
    }

    fn order(&self, replica: usize) -> Call {
        self.alice.at(replica).orders(&self.sku, 1).lock("pre-deduct")
    }

    async fn pause_orders(&self, count: usize, point: &str) -> Vec<PausedCall> {
        let mut paused = Vec::new();
        for _ in 0..count {
            paused.push(self.shop.pause(&self.admin, self.order(0), point).await);
        }
        paused
    }

    /// Sends orders until one is rejected as sold out. Returns those that were placed.
    async fn sell_out(&self, replica: usize) -> Vec<Value> {
        let mut placed = Vec::new();
        loop {
            let reply = self.order(replica).await;
            if reply.status != 201 {
                reply.fails(409, "sold-out");
                return placed;
            }
            placed.push(reply.succeeds(201));
        }
    }

    async fn audit(&self, replica: usize) -> Value {
        self.shop.item_audit_at(replica, &self.sku).await
    }

    /// The audit once the row has followed the orders; `unsettled` is what it has no units for.
    async fn settled(&self, replica: usize, unsettled: i64) -> Value {
        until("the orders are settled", async || {
            self.audit(replica).await["unsettled"] == unsettled
        })
        .await;
        self.audit(replica).await
    }

    fn reconciles(&self, replica: usize) -> Call {
        self.admin.at(replica).post(&format!("/api/lab/items/{}/reconcile", self.sku))
    }

    async fn reconcile(&self, replica: usize) -> Value {
        self.reconciles(replica).succeeds(200).await
    }

    /// All units are sold, and the books say so.
    async fn assert_sold_exactly(&self, replica: usize) {
        let audit = self.settled(replica, 0).await;
        let sold =
            json!({ "sold": STOCK, "stock": 0, "oversold": 0, "undersold": 0, "counter": 0 });
        assert_has(&audit, sold);
        assert_has(&audit, json!({ "ok": true, "breaks": 0, "drift": 0, "forks": [] }));
        self.shop.assert_sound().await;
    }
}

#[tokio::test]
async fn killed_replica_undersells_until_reconciled() {
    let mut lab = Lab::new(TestShop::start(2).await).await;
    lab.pause_orders(ON_THEIR_WAY, "deducted").await;
    lab.shop.replicas[0].kill();
    let lost = i64::try_from(ON_THEIR_WAY).unwrap();

    assert_eq!(lab.sell_out(1).await.len(), 5);
    let audit = lab.settled(1, 0).await;
    assert_has(&audit, json!({ "sold": STOCK - lost, "stock": lost, "counter": 0 }));
    // Nothing is wrong with the books: the units are there, and nobody can buy them.
    assert_has(&audit, json!({ "ok": true, "undersold": lost, "oversold": 0, "forks": [] }));

    let repaired = lab.reconcile(1).await;
    assert_has(&repaired, json!({ "counter_before": 0, "counter": lost, "undersold": lost }));
    assert_has(&repaired, json!({ "oversold": 0, "cancelled": [] }));
    assert_eq!(lab.sell_out(1).await.len(), ON_THEIR_WAY);
    lab.assert_sold_exactly(1).await;
}

/// Not even if Redis loses the counter then: it is loaded without the units of orders that are not
/// settled yet.
#[tokio::test]
async fn replica_killed_behind_commit_loses_nothing() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let mut lab = Lab::new(shop).await;
    lab.pause_orders(1, "committed").await;
    lab.shop.replicas[0].kill();

    let audit = lab.audit(1).await;
    assert_has(&audit, json!({ "sold": 1, "unsettled": 1, "stock": STOCK, "undersold": 0 }));
    assert_has(&audit, json!({ "ok": true, "counter": STOCK - 1 }));
    query::<String>(&redis.url, "FLUSHALL").unwrap();
    // The next order's settlement includes its line.
    assert_eq!(lab.sell_out(1).await.len(), 7);
    lab.assert_sold_exactly(1).await;
}

#[tokio::test]
async fn flushed_redis_oversells_until_reconciled() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let lab = Lab::new(shop).await;
    let paused = lab.pause_orders(ON_THEIR_WAY, "deducted").await;
    query::<String>(&redis.url, "FLUSHALL").unwrap();

    // The row does not know of the three, and the counter is loaded from it.
    assert_eq!(lab.sell_out(1).await.len(), 8);
    lab.settled(0, 0).await;
    let mut late = Vec::new();
    for paused in paused {
        late.push(id_of(&lab.shop.resume(&lab.admin, paused).await.succeeds(201)));
    }
    // Paid and without a unit: it is refunded, the others are cancelled.
    lab.alice.pays(&late[1]).succeeds(200).await;

    let audit = lab.settled(0, 3).await;
    assert_has(&audit, json!({ "sold": STOCK + 3, "stock": 0, "oversold": 3, "undersold": 0 }));
    assert_has(&audit, json!({ "ok": false, "breaks": 0, "forks": [] }));

    // Without time to cancel one, it says what is left to do.
    let here = lab.shop.in_process_with_redis("batched", &redis.url);
    let mut context = RequestContext::new(&here, Uuid::now_v7());
    context.deadline = Instant::now();
    let sku = Sku::try_from(lab.sku.clone()).unwrap();
    let partial = reconcile(&here, &context, &sku).await.unwrap();
    assert_eq!((partial.unsettled, partial.cancelled), (3, vec![]));

    // The newest is paid between the read of its status and its cancellation.
    let pays = lab.alice.pays(&late[2]).lock("row-lock");
    let paying = lab.shop.pause(&lab.admin, pays, "write").await;
    let reconciling = lab.reconciles(0).send();
    until("it waits for the order", async || lab.shop.waiting_sessions().await == 1).await;
    lab.shop.resume(&lab.admin, paying).await.succeeds(200);
    let repaired = reconciling.await.succeeds(200);
    assert_has(&repaired, json!({ "oversold": 3, "undersold": 0, "counter": 0, "unsettled": 0 }));
    late.reverse();
    assert_eq!(repaired["cancelled"], json!(late), "the newest first");
    for (order, status) in late.iter().zip(["refunded", "refunded", "cancelled"]) {
        assert_eq!(lab.alice.order(order).await["status"], status);
    }
    lab.assert_sold_exactly(0).await;
}

#[tokio::test]
async fn failover_that_loses_writes_oversells_until_reconciled() {
    let (primary, promoted) = (own_redis().await, own_redis().await);
    let [port] = free_ports();
    let replica_of = |of: &str| query::<String>(&promoted.url, &format!("REPLICAOF {of}")).unwrap();
    query::<String>(&primary.url, &format!("CONFIG SET port {port}")).unwrap();
    replica_of(&format!("127.0.0.1 {port}"));

    let mut lab = Lab::new(TestShop::start_with(1, &[("REDIS_URL", &primary.url)]).await).await;
    lab.order(0).succeeds(201).await;
    let counter = format!("GET {}stock:{{sku:{}}}", lab.shop.prefix, lab.sku);
    until("the counter is copied", async || {
        query::<Option<i64>>(&promoted.url, &counter).unwrap() == Some(STOCK - 1)
    })
    .await;

    // Cut off from its primary, it misses two orders, and is promoted.
    replica_of("127.0.0.1 1");
    for _ in 0..2 {
        lab.order(0).succeeds(201).await;
    }
    drop(primary);
    replica_of("NO ONE");
    lab.shop.add_replica(&[("REDIS_URL", &promoted.url)]);

    assert_eq!(lab.sell_out(1).await.len(), 7);
    let audit = lab.settled(1, 2).await;
    assert_has(&audit, json!({ "sold": STOCK + 2, "oversold": 2, "ok": false }));
    let repaired = lab.reconcile(1).await;
    assert_has(&repaired, json!({ "oversold": 2, "counter": 0 }));
    assert_eq!(repaired["cancelled"].as_array().unwrap().len(), 2);
    lab.assert_sold_exactly(1).await;
}

#[tokio::test]
async fn rejected_or_repeated_order_returns_its_units() {
    let lab = Lab::new(TestShop::start(2).await).await;
    let call = lab.order(0);
    let first = call.clone().await;
    assert_eq!(first.status, 201, "{first}");
    call.await.replays(&first);
    assert_eq!(lab.settled(0, 0).await["counter"], STOCK - 1);

    // Rejected by a rule that is checked behind the counter.
    lab.admin.sets_limit(&lab.sku, 1).succeeds(200).await;
    lab.order(1).fails(409, "limit-reached").await;
    let audit = lab.settled(0, 0).await;
    assert_has(&audit, json!({ "counter": STOCK - 1, "undersold": 0, "sold": 1 }));
    lab.admin.sets_limit(&lab.sku, Value::Null).succeeds(200).await;
    assert_eq!(lab.sell_out(1).await.len(), 7);
    lab.assert_sold_exactly(0).await;
}

#[tokio::test]
async fn unknown_outcome_undersells_until_reconciled() {
    let mut lab = Lab::new(TestShop::start(2).await).await;
    // This one is placed, and its replica does not settle it.
    lab.pause_orders(1, "committed").await;
    lab.shop.replicas[0].kill();

    // Its write waits for a table until its session is ended: neither known to be done, nor not.
    let mut blocker = lab.shop.pool.begin().await.unwrap();
    let lock = "lock table unsettled_lines in access exclusive mode";
    sqlx::query(lock).execute(&mut *blocker).await.unwrap();
    let order = lab.order(1).send();
    until("the write waits", async || lab.shop.waiting_sessions().await == 1).await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'";
    sqlx::query(end).execute(&mut *blocker).await.unwrap();
    let reply = order.await;
    assert_eq!(reply.status, 503, "{reply}");
    blocker.rollback().await.unwrap();

    // It might have been placed: the item is settled all the same, and with it the first order.
    let audit = lab.settled(1, 0).await;
    assert_has(&audit, json!({ "sold": 1, "counter": STOCK - 2, "undersold": 1, "ok": true }));
    assert_has(&lab.reconcile(1).await, json!({ "undersold": 1, "counter": STOCK - 1 }));
    assert_eq!(lab.sell_out(1).await.len(), 7);
    lab.assert_sold_exactly(1).await;
}

/// The row still has units that the counter has sold: the counter decides what may be removed.
#[tokio::test]
async fn removed_units_leave_the_counter_first() {
    let lab = Lab::new(TestShop::start(2).await).await;
    let paused = lab.pause_orders(6, "deducted").await;
    let restock = |delta| lab.admin.restocks(&lab.sku, delta).lock("pre-deduct");
    restock(-3).fails(409, "sold-out").await;
    restock(-2).succeeds(200).await;
    lab.order(1).fails(409, "sold-out").await;
    for paused in paused {
        lab.shop.resume(&lab.admin, paused).await.succeeds(201);
    }
    let audit = lab.settled(0, 0).await;
    assert_has(&audit, json!({ "sold": 6, "stock": 0, "oversold": 0, "undersold": 0, "ok": true }));

    // What an admin adds is for sale at once.
    restock(2).succeeds(200).await;
    let placed = lab.sell_out(1).await;
    assert_eq!(placed.len(), 2);

    // What a cancelled order returns is in the row alone, until the item is reconciled.
    lab.settled(0, 0).await;
    lab.alice.cancels(&placed[0]).succeeds(200).await;
    let here = lab.shop.in_process("pre-deduct");
    let order = OrderId(id_of(&placed[1]).parse().unwrap());
    let buyer = sqlx::query_scalar("select user_id from orders where id = $1").bind(order.0);
    let buyer = UserId(buyer.fetch_one(&lab.shop.pool).await.unwrap());
    let context = RequestContext::new(&here, Uuid::now_v7());
    let customer = ReturnedBy::Customer(buyer);
    engine::return_order(&here, &context, customer, order, None, Return::Cancel).await.unwrap();
    assert_has(&lab.audit(0).await, json!({ "stock": 2, "counter": 0, "undersold": 2 }));
    assert_has(&lab.reconcile(0).await, json!({ "undersold": 2, "counter": 2 }));
    assert_eq!(lab.sell_out(0).await.len(), 2);
    lab.assert_sold_exactly(1).await;
}

/// Its units are in the row, and not in the counter yet: whoever loads or replaces the counter from
/// the row then would count them twice.
#[tokio::test]
async fn units_of_a_restock_on_its_way_are_counted_once() {
    let lab = Lab::new(TestShop::start(2).await).await;
    let pause_restock = async || {
        let restock = lab.admin.restocks(&lab.sku, 4).lock("pre-deduct");
        lab.shop.pause(&lab.admin, restock, "committed").await
    };

    // The item has had no order: there is no counter.
    let restock = pause_restock().await;
    assert_eq!(lab.sell_out(1).await.len(), 8);
    lab.shop.resume(&lab.admin, restock).await.succeeds(200);
    assert_eq!(lab.sell_out(1).await.len(), 4);
    lab.settled(0, 0).await;

    let restock = pause_restock().await;
    lab.reconciles(1).fails(503, "overloaded").await;
    lab.shop.resume(&lab.admin, restock).await.succeeds(200);
    assert_has(&lab.reconcile(1).await, json!({ "counter_before": 4, "counter": 4 }));
    // One that failed is not on its way.
    let too_many = lab.admin.restocks(&lab.sku, 1_000_000_000).lock("pre-deduct");
    too_many.fails(422, "invalid-request").await;
    assert_has(&lab.reconcile(1).await, json!({ "counter_before": 4, "counter": 4 }));
    assert_eq!(lab.sell_out(0).await.len(), 4);
    let audit = lab.settled(0, 0).await;
    assert_has(
        &audit,
        json!({ "sold": 16, "stock": 0, "oversold": 0, "undersold": 0, "ok": true }),
    );
    lab.shop.assert_sound().await;
}

/// An oversold order that is larger than what is left keeps none that fits from its units.
#[tokio::test]
async fn order_without_units_is_passed_over() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let lab = Lab::new(shop).await;
    let order = |quantity| lab.alice.orders(&lab.sku, quantity).lock("pre-deduct");
    let large = lab.shop.pause(&lab.admin, order(STOCK), "deducted").await;
    query::<String>(&redis.url, "FLUSHALL").unwrap();
    order(STOCK - 3).succeeds(201).await;
    lab.settled(0, 0).await;
    let small = lab.pause_orders(2, "committed").await;

    let large = id_of(&lab.shop.resume(&lab.admin, large).await.succeeds(201));
    assert_has(&lab.settled(0, STOCK).await, json!({ "stock": 1, "counter": 1 }));
    for small in small {
        lab.shop.resume(&lab.admin, small).await.succeeds(201);
    }
    let repaired = lab.reconcile(0).await;
    assert_has(&repaired, json!({ "cancelled": [large], "oversold": STOCK - 1, "counter": 1 }));
    assert_eq!(lab.sell_out(0).await.len(), 1);
    lab.assert_sold_exactly(0).await;
}

/// Orders are returned by whoever does it, and their items are deleted, before they are settled.
#[tokio::test]
async fn unsettled_lines_follow_their_orders() {
    let lab = Lab::new(TestShop::start(1).await).await;
    let placed = lab.sell_out(0).await;
    lab.settled(0, 0).await;
    // The row has no units for these.
    let wait_again = "insert into unsettled_lines (sku, order_id, quantity, before, request_id)
                      select sku, order_id, quantity, 1, order_id from order_lines";
    lab.shop.execute(wait_again).await;

    lab.alice.cancels(&placed[0]).succeeds(200).await;
    let returned = "select count(*) from unsettled_lines where returned";
    assert_eq!(lab.shop.number(returned).await, 1);

    for order in &placed[1..] {
        lab.alice.cancels(order).succeeds(200).await;
    }
    let sku = Sku::try_from(lab.sku.clone()).unwrap();
    let newest = oldest_kept(Duration::ZERO);
    let pool = lab.shop.pool.clone().into();
    assert!(purge_lab_item(&pool, &sku, &newest).await.unwrap());
    assert_eq!(lab.shop.number("select count(*) from unsettled_lines").await, 0);
}

/// A settlement reads each line that it settles, and no others, however many there are.
#[tokio::test]
async fn long_backlog_is_settled_in_one_pass() {
    let lab = Lab::new(TestShop::start(1).await).await;
    let sku = Sku::try_from(lab.sku.clone()).unwrap();
    let lines = 10_000;
    let fill = "with new_orders as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), 'pending', 0, n, now(), now()
               from generate_series(1, $2) n returning id),
         lines as (
             insert into order_lines (order_id, sku, quantity, unit_price_cents, name, entry_seq)
             select id, $1, 1, 0, 'item', 0 from new_orders)
         insert into unsettled_lines (sku, order_id, quantity, before, request_id)
         select $1, id, 1, 1, id from new_orders";
    for sql in [fill, "update items set stock = $2 where sku = $1"] {
        sqlx::query(sql).bind(&lab.sku).bind(lines).execute(&lab.shop.pool).await.unwrap();
    }
    lab.shop.execute("vacuum analyze unsettled_lines").await;

    settle(&lab.shop.pool.clone().into(), &sku).await.unwrap();
    assert_eq!(lab.shop.stock(&lab.sku).await, 0);
    let counted = "select n_tup_del, (seq_tup_read + idx_tup_fetch)::bigint
                     from pg_stat_user_tables where relname = 'unsettled_lines'";
    let counted =
        async || sqlx::query_as::<_, (i64, i64)>(counted).fetch_one(&lab.shop.pool).await.unwrap();
    until("its statistics have arrived", async || counted().await.0 == lines).await;
    // Once to select it, once to delete it.
    let (_, read) = counted().await;
    assert!(read <= 2 * lines, "{read} rows for {lines} lines");
}
