//! Failures of the strategies between no lock and the default: each broken one is shown broken, and
//! the others are exact.

use std::time::{Duration, Instant};

use holdfast_shop::strategy::STRATEGIES;
use holdfast_testkit::pause_points::PausedCall;
use holdfast_testkit::topology;
use holdfast_testkit::{Call, Reply, TestShop, User, assert_has, run_program, services, until};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

const STOCK: i64 = 20;

/// Replicas, users, and an item that admits any strategy.
pub struct Lab {
    pub shop: TestShop,
    pub alice: User,
    pub admin: User,
    pub sku: String,
}

impl Lab {
    pub async fn new(replicas: usize) -> Self {
        let shop = TestShop::start(replicas).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(STOCK).await;
        Self { shop, alice, admin, sku }
    }

    pub fn order(&self, replica: usize, strategy: &str) -> Call {
        self.alice.at(replica).orders(&self.sku, 1).lock(strategy)
    }

    fn restock(&self, replica: usize, strategy: &str) -> Call {
        self.admin.at(replica).restocks(&self.sku, 5).lock(strategy)
    }

    /// The payment of an order of one unit, which is placed.
    async fn payment(&self, replica: usize, strategy: &str) -> Call {
        let order = self.alice.orders(&self.sku, 1).ok().await;
        self.alice.at(replica).pays(&order).lock(strategy)
    }

    pub async fn pause_at(&self, call: Call, point: &str) -> PausedCall {
        self.shop.pause(&self.admin, call, point).await
    }

    pub async fn pause_after_read(&self, replica: usize, strategy: &str) -> PausedCall {
        self.pause_at(self.order(replica, strategy), "read").await
    }

    pub async fn resume(&self, paused: PausedCall) -> Reply {
        self.shop.resume(&self.admin, paused).await
    }

    pub async fn forks(&self) -> usize {
        let audit = self.shop.item_audit_at(self.shop.replicas.len() - 1, &self.sku).await;
        let forks = audit["forks"].as_array().unwrap().len();
        assert_eq!(audit["ok"], forks == 0, "{audit:#}");
        forks
    }

    /// The reply of Redis to a command on the item's lock.
    pub fn redis(&self, command: &str) -> i64 {
        let key = format!("{}lock:{{sku:{}}}", self.shop.prefix, self.sku);
        topology::query(&services().running.redis_url, &format!("{command} {key}")).unwrap()
    }

    async fn until_locked(&self) {
        until("the item is locked", async || self.redis("EXISTS") == 1).await;
    }

    async fn assert_locked_forever(&self, replica: usize, strategy: &str) {
        assert_eq!(self.redis("PTTL"), -1, "the key never expires");
        self.order(replica, strategy).tries().fails(423, "lock-busy").await;
    }
}

fn before(order: &Value) -> &Value {
    &order["lines"][0]["stock"]["before"]
}

#[tokio::test]
async fn kill_under_setnx_locks_item_forever() {
    let mut lab = Lab::new(2).await;
    lab.order(0, "setnx").pause("held").send();
    lab.until_locked().await;
    lab.shop.replicas[0].kill();
    lab.assert_locked_forever(1, "setnx").await;
}

#[tokio::test]
async fn kill_before_expire_locks_item_forever() {
    let mut lab = Lab::new(2).await;
    lab.order(0, "setnx-expire").pause("expire").ttl_ms(100).send();
    lab.until_locked().await;
    lab.shop.replicas[0].kill();
    lab.assert_locked_forever(1, "setnx-expire").await;
}

/// The first order commits in time and releases its lock late, when the second holds it and has
/// read. If this admits a third order (`third_is_admitted`), the ledger forks.
async fn forks_after_late_release(strategy: &str, late: &str, third_is_admitted: bool) -> usize {
    let lab = Lab::new(2).await;
    let first = lab.order(0, strategy).ttl_ms(1_000);
    let first = lab.pause_at(first, late).await;
    let second = lab.order(1, strategy).ttl_ms(20_000);
    let second = lab.pause_at(second, "read").await;
    let first = lab.resume(first).await.succeeds(201);
    assert_eq!(lab.redis("EXISTS") == 0, third_is_admitted, "the second's lock was deleted");
    let third = lab.order(0, strategy).send();
    if third_is_admitted {
        until("the third is placed", async || third.is_finished()).await;
    }
    let second = lab.resume(second).await.succeeds(201);
    third.ok().await;
    assert_eq!((before(&first), before(&second)), (&json!(STOCK), &json!(STOCK - 1)));
    lab.forks().await
}

#[tokio::test]
async fn late_ttl_release_deletes_next_holders_lock() {
    assert_eq!(forks_after_late_release("ttl", "committed", true).await, 1);
}

#[tokio::test]
async fn check_then_del_fails_only_between_both() {
    assert_eq!(forks_after_late_release("check-then-del", "delete", true).await, 1);
    assert_eq!(forks_after_late_release("check-then-del", "committed", false).await, 0);
}

#[tokio::test]
async fn late_owner_release_deletes_nothing() {
    assert_eq!(forks_after_late_release("owner", "committed", false).await, 0);
}

#[tokio::test]
async fn work_longer_than_lease_forks_ledger() {
    for strategy in ["owner", "setnx-expire", "ttl", "check-then-del", "expire-only"] {
        let lab = Lab::new(2).await;
        let slow = lab.order(0, strategy).ttl_ms(200);
        let slow = lab.pause_at(slow, "read").await;
        lab.order(1, strategy).ok().await;
        let slow = lab.resume(slow).await.succeeds(201);
        assert_eq!(before(&slow), STOCK, "{strategy}");
        assert_eq!(lab.forks().await, 1, "{strategy}");
    }
}

#[tokio::test]
async fn expire_only_costs_one_lease_per_change() {
    let lab = Lab::new(2).await;
    let order = |replica| lab.order(replica, "expire-only").ttl_ms(1_200);
    let began = Instant::now();
    order(0).ok().await;
    assert_eq!(lab.redis("EXISTS"), 1, "no request deletes it");
    let second = order(1).ok().await;
    assert!(began.elapsed() >= Duration::from_millis(1_200), "{:?}", began.elapsed());
    assert_eq!((before(&second), lab.forks().await), (&json!(STOCK - 1), 0));
}

#[tokio::test]
async fn early_release_lets_next_read_stale_stock() {
    let lab = Lab::new(2).await;
    let first = lab.order(0, "early-release").traced();
    let first = lab.pause_at(first, "commit").await;
    assert_eq!(lab.redis("EXISTS"), 0, "the lock is free, and nothing is committed");
    let second = lab.order(1, "early-release").send();
    until("the second has read, and its write waits for the row", async || {
        lab.shop.waiting_sessions().await == 1
    })
    .await;
    let first = lab.resume(first).await.succeeds(201);
    let second = second.ok().await;
    assert_eq!((before(&first), before(&second)), (&json!(STOCK), &json!(STOCK)));
    assert_eq!(lab.forks().await, 1);
    let events: Vec<&Value> =
        first["trace"].as_array().unwrap().iter().map(|e| &e["event"]).collect();
    let paused = ["paused", "resumed"];
    let (before, after) = (["wait", "held", "read", "write", "release", "commit"], ["committed"]);
    assert_eq!(events, [&before[..], &paused, &after].concat());
}

/// Sells the last unit while an order has checked it and is paused, and resumes that order.
async fn sell_checked_unit(may_go_below_zero: bool) -> (Lab, Reply) {
    let mut lab = Lab::new(2).await;
    let item = json!({ "stock": 1, "may_go_below_zero": may_go_below_zero });
    let item = lab.admin.creates_lab_item(&item).ok().await;
    item["sku"].as_str().unwrap().clone_into(&mut lab.sku);

    let late = lab.pause_after_read(0, "check-then-decrement").await;
    assert_eq!(before(&lab.order(1, "check-then-decrement").ok().await), 1);
    let late = lab.resume(late).await;
    (lab, late)
}

#[tokio::test]
async fn check_then_decrement_sells_below_zero() {
    let (lab, late) = sell_checked_unit(true).await;
    let order = late.succeeds(201);
    // What its update found, and not what it had checked: so say the response and the ledger.
    let stock = json!({ "before": 0, "delta": -1, "after": -1 });
    assert_has(&order["lines"][0]["stock"], stock.clone());
    let ledger = lab.alice.reads(&format!("/api/items/{}/ledger", lab.sku)).await;
    assert_has(ledger["items"].as_array().unwrap().last().unwrap(), stock);
    let audit = lab.shop.item_audit(&lab.sku).await;
    let found = json!({ "sold": 2, "stock": -1, "oversold": 1, "drift": 0, "breaks": 0,
                        "forks": [], "ok": false });
    assert_has(&audit, found);

    lab.order(0, "atomic").fails(409, "sold-out").await;
    // A returned unit is one that did not exist.
    lab.alice.cancels(&order).ok().await;
    assert_eq!(lab.shop.stock(&lab.sku).await, 0);
    lab.shop.assert_sound().await;
}

#[tokio::test]
async fn constraint_turns_oversell_into_error() {
    let (lab, late) = sell_checked_unit(false).await;
    late.fails(500, "internal-error");
    let audit = lab.shop.item_audit(&lab.sku).await;
    assert_has(&audit, json!({ "sold": 1, "stock": 0, "oversold": 0, "ok": true }));
    lab.order(0, "check-then-decrement").fails(409, "sold-out").await;
    lab.shop.assert_sound().await;
}

#[tokio::test]
async fn wrong_key_does_not_exclude_orders() {
    let lab = Lab::new(2).await;
    let first = lab.pause_after_read(0, "wrong-key").await;
    let second = lab.order(1, "wrong-key").traced().ok().await;
    let first = lab.resume(first).await.succeeds(201);
    assert_eq!((before(&first), before(&second)), (&json!(STOCK), &json!(STOCK)));
    assert_eq!(lab.forks().await, 1);
    let held = &second["trace"][1];
    let order = format!("{{order:{}}}", second["id"].as_str().unwrap());
    assert_has(held, json!({ "event": "held", "key": order }));
}

#[tokio::test]
async fn wrong_key_spends_one_balance_twice() {
    let lab = Lab::new(2).await;
    let (first, second) = (lab.payment(0, "wrong-key").await, lab.payment(1, "wrong-key").await);
    let first = lab.pause_at(first, "read").await;
    second.succeeds(200).await;
    lab.resume(first).await.succeeds(200);
    let forks = "select count(*) from (select from balance_ledger
                  group by user_id, version having count(*) > 1) as forks";
    assert_eq!(lab.shop.number(forks).await, 1);
    lab.shop.assert_sound().await;
}

#[tokio::test]
async fn conflicting_change_retries_from_fresh_read() {
    for strategy in ["version", "serializable"] {
        let lab = Lab::new(2).await;
        let slow = lab.pause_after_read(0, strategy).await;
        assert_eq!(before(&lab.order(1, strategy).ok().await), STOCK, "{strategy}");
        let slow = lab.resume(slow).await.succeeds(201);
        assert_eq!(before(&slow), STOCK - 1, "{strategy}");
        let slow = lab.pause_at(lab.restock(0, strategy), "read").await;
        lab.restock(1, strategy).succeeds(200).await;
        let slow = lab.resume(slow).await.succeeds(200);
        assert_eq!(slow["after"], STOCK - 2 + 5 + 5, "{strategy}");
        assert_eq!(lab.forks().await, 0, "{strategy}");
    }
}

/// The fence of a row is raised after a write has read it, and its version is the same: the
/// statement itself compares the fences, and stores its own.
#[tokio::test]
async fn every_fenced_statement_compares_and_stores_fences() {
    let lab = Lab::new(1).await;
    let writes = [
        (lab.order(0, "fenced"), 201, "items"),
        (lab.restock(0, "fenced"), 200, "items"),
        (lab.payment(0, "fenced").await, 200, "accounts"),
    ];
    for (round, (write, status, table)) in (1..).zip(writes) {
        let late = lab.pause_at(write, "commit").await;
        let raise = format!("update {table} set fence = $1");
        let later = 10_000 * round;
        sqlx::query(AssertSqlSafe(raise)).bind(later).execute(&lab.shop.pool).await.unwrap();
        lab.resume(late).await.succeeds(status);
        let greatest = format!("select max(fence) from {table}");
        let greatest = sqlx::query_scalar::<_, i64>(AssertSqlSafe(greatest))
            .fetch_one(&lab.shop.pool)
            .await
            .unwrap();
        assert!(greatest > later, "{table}: {greatest} overwrote {later}");
    }
    assert_eq!(lab.forks().await, 0);
}

#[tokio::test]
async fn conflicting_payments_are_retried() {
    for strategy in ["version", "serializable", "advisory"] {
        let lab = Lab::new(2).await;
        let mut payments = Vec::new();
        for n in 0..6 {
            payments.push(lab.payment(n % 2, strategy).await.send());
        }
        for paid in futures_util::future::join_all(payments).await {
            paid.succeeds(200);
        }
        let me = lab.alice.reads("/api/me").await;
        assert_eq!(me["lab_balance_cents"], 100_000 - 6 * 100, "{strategy}");
    }
}

#[tokio::test]
async fn in_process_locks_fork_on_two_replicas() {
    for strategy in ["local", "queue"] {
        let lab = Lab::new(2).await;
        let slow = lab.pause_after_read(0, strategy).await;
        // At the same replica the lock excludes.
        lab.order(0, strategy).tries().fails(423, "lock-busy").await;
        assert_eq!(before(&lab.order(1, strategy).ok().await), STOCK, "{strategy}");
        assert_eq!(before(&lab.resume(slow).await.succeeds(201)), STOCK, "{strategy}");
        assert_eq!(lab.forks().await, 1, "{strategy}");
        // The audit does not cover lost updates of lab items.
        lab.shop.assert_sound().await;
    }
}

/// The strategies that a server accepts. The others are refused: `tests/it/units.rs`,
/// `unsafe_lock_must_be_allowed`.
fn of_servers() -> impl Iterator<Item = &'static str> {
    let strategies = STRATEGIES.iter().filter(|it| !it.is_for_lab_only());
    strategies.map(|strategy| strategy.name)
}

#[test]
fn help_and_documentation_list_every_strategy() {
    let help = |command| {
        let text = String::from_utf8(run_program(&[command, "--help"], &[]).stdout).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let names: Vec<&str> = of_servers().collect();
    let listed = format!("Strategy: {} or batched", names[..names.len() - 1].join(", "));
    let listed_by_up = listed.replace("Strategy", "Strategy of the replicas");
    assert!(help("up").contains(&listed_by_up) && help("serve").contains(&listed), "{listed}");
    let names: Vec<&str> = STRATEGIES.iter().map(|strategy| strategy.name).collect();
    let concepts = include_str!("../../docs/CONCEPTS.md");
    let (_, section) = concepts.split_once("\n## Strategies\n").unwrap();
    let (table, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(rows, names);
}

#[tokio::test]
async fn server_runs_under_every_strategy() {
    for strategy in of_servers() {
        let ttl = ("HOLDFAST_LOCK_TTL_MS", "1000");
        let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK", strategy), ttl]).await;
        let alice = shop.sign_in("alice").await;
        let order = alice.orders("deadbolt", 1).await;
        assert_eq!(order.header("holdfast-strategy"), strategy);
        let order = order.succeeds(201);
        for action in ["pay", "refund"] {
            alice.acts(&order, action).ok().await;
        }
        shop.assert_sound().await;
    }
}
