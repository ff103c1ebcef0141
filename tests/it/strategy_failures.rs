//! Failures of the strategies between no lock and the default: each broken one is shown broken, and
//! the others are exact.

use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_shop::strategy::STRATEGIES;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::common::requests::Answer as _;
use crate::common::{Shop, User, services, until};
use crate::pause_points::with_pause;
use crate::topology;

const STOCK: i64 = 20;

/// Replicas, users, and an item that admits any strategy.
pub struct Lab {
    pub shop: Shop,
    pub alice: User,
    pub admin: User,
    pub sku: String,
}

pub struct PausedOrder {
    pub id: Uuid,
    pub replica: usize,
    pub sent: JoinHandle<Sent>,
}

impl Lab {
    pub async fn new(replicas: usize) -> Self {
        let shop = Shop::start(replicas).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(STOCK).await;
        Self { shop, alice, admin, sku }
    }

    pub fn order(&self, replica: usize, strategy: &str) -> RequestBuilder {
        self.shop.order(&self.alice, replica, &self.sku, 1).header("Holdfast-Lock", strategy)
    }

    fn restock(&self, replica: usize, strategy: &str) -> RequestBuilder {
        let path = format!("/api/items/{}/stock", self.sku);
        let more = json!({ "delta": 5, "reason": "restock" });
        let request = self.shop.request(&self.admin, Method::POST, replica, &path).json(&more);
        request.header("Holdfast-Lock", strategy)
    }

    /// The payment of an order of one unit, which is placed.
    async fn payment(&self, replica: usize, strategy: &str) -> RequestBuilder {
        let order = self.shop.place_order(&self.alice, &self.sku, 1).await;
        self.shop.act(&self.alice, replica, &order, "pay").header("Holdfast-Lock", strategy)
    }

    pub async fn pause_at(
        &self,
        replica: usize,
        request: RequestBuilder,
        point: &str,
    ) -> PausedOrder {
        let (id, request) = with_pause(request, point);
        let sent = tokio::spawn(request.send());
        self.shop.until_paused(&self.admin, replica, id, point).await;
        PausedOrder { id, replica, sent }
    }

    pub async fn pause_after_read(&self, replica: usize, strategy: &str) -> PausedOrder {
        self.pause_at(replica, self.order(replica, strategy), "read").await
    }

    /// Resumes it, again after each retry, and returns its response.
    async fn resume(&self, held: PausedOrder, status: u16) -> Value {
        until("the request has a response", async || {
            self.shop.resume_request(&self.admin, held.replica, &held.id.to_string()).await;
            held.sent.is_finished()
        })
        .await;
        held.sent.await.unwrap().unwrap().gives(status).await
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
        let busy = self.order(replica, strategy).header("Holdfast-Wait", "try");
        busy.refuses(423, "lock-busy").await;
    }
}

pub type Sent = Result<Response, reqwest::Error>;

async fn placed(order: RequestBuilder) -> Value {
    order.gives(201).await
}

async fn response_of(sent: JoinHandle<Sent>) -> Value {
    sent.gives(201).await
}

fn before(order: &Value) -> &Value {
    &order["lines"][0]["stock"]["before"]
}

#[tokio::test]
async fn kill_under_setnx_locks_item_forever() {
    let mut lab = Lab::new(2).await;
    let holder = lab.order(0, "setnx").header("Holdfast-Pause", "held");
    tokio::spawn(holder.send());
    lab.until_locked().await;
    lab.shop.replicas[0].kill();
    lab.assert_locked_forever(1, "setnx").await;
}

#[tokio::test]
async fn kill_before_expire_locks_item_forever() {
    let mut lab = Lab::new(2).await;
    let holder = lab.order(0, "setnx-expire").header("Holdfast-Pause", "expire");
    tokio::spawn(holder.header("Holdfast-Ttl-Ms", "100").send());
    lab.until_locked().await;
    lab.shop.replicas[0].kill();
    lab.assert_locked_forever(1, "setnx-expire").await;
}

/// The first order commits in time and releases its lock late, when the second holds it and has
/// read. If this admits a third order (`third_is_admitted`), the ledger forks.
async fn forks_after_late_release(strategy: &str, late: &str, third_is_admitted: bool) -> usize {
    let lab = Lab::new(2).await;
    let first = lab.order(0, strategy).header("Holdfast-Ttl-Ms", "1000");
    let first = lab.pause_at(0, first, late).await;
    let second = lab.order(1, strategy).header("Holdfast-Ttl-Ms", "20000");
    let second = lab.pause_at(1, second, "read").await;
    let first = lab.resume(first, 201).await;
    assert_eq!(lab.redis("EXISTS") == 0, third_is_admitted, "the second's lock was deleted");
    let third = tokio::spawn(lab.order(0, strategy).send());
    if third_is_admitted {
        until("the third is placed", async || third.is_finished()).await;
    }
    let second = lab.resume(second, 201).await;
    response_of(third).await;
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
        let slow = lab.order(0, strategy).header("Holdfast-Ttl-Ms", "200");
        let slow = lab.pause_at(0, slow, "read").await;
        placed(lab.order(1, strategy)).await;
        let slow = lab.resume(slow, 201).await;
        assert_eq!(before(&slow), STOCK, "{strategy}");
        assert_eq!(lab.forks().await, 1, "{strategy}");
    }
}

#[tokio::test]
async fn expire_only_costs_one_lease_per_change() {
    let lab = Lab::new(2).await;
    let order = |replica| lab.order(replica, "expire-only").header("Holdfast-Ttl-Ms", "1200");
    let began = Instant::now();
    placed(order(0)).await;
    assert_eq!(lab.redis("EXISTS"), 1, "no request deletes it");
    let second = placed(order(1)).await;
    assert!(began.elapsed() >= Duration::from_millis(1_200), "{:?}", began.elapsed());
    assert_eq!((before(&second), lab.forks().await), (&json!(STOCK - 1), 0));
}

#[tokio::test]
async fn early_release_lets_next_read_stale_stock() {
    let lab = Lab::new(2).await;
    let first = lab.order(0, "early-release").header("Holdfast-Trace", "on");
    let first = lab.pause_at(0, first, "commit").await;
    assert_eq!(lab.redis("EXISTS"), 0, "the lock is free, and nothing is committed");
    let second = tokio::spawn(lab.order(1, "early-release").send());
    until("the second has read, and its write waits for the row", async || {
        lab.shop.waiting_sessions().await == 1
    })
    .await;
    let first = lab.resume(first, 201).await;
    let second = response_of(second).await;
    assert_eq!((before(&first), before(&second)), (&json!(STOCK), &json!(STOCK)));
    assert_eq!(lab.forks().await, 1);
    let events: Vec<&Value> =
        first["trace"].as_array().unwrap().iter().map(|e| &e["event"]).collect();
    assert_eq!(events, ["wait", "held", "read", "write", "release", "commit", "committed"]);
}

#[tokio::test]
async fn wrong_key_does_not_exclude_orders() {
    let lab = Lab::new(2).await;
    let first = lab.pause_after_read(0, "wrong-key").await;
    let second = placed(lab.order(1, "wrong-key").header("Holdfast-Trace", "on")).await;
    let first = lab.resume(first, 201).await;
    assert_eq!((before(&first), before(&second)), (&json!(STOCK), &json!(STOCK)));
    assert_eq!(lab.forks().await, 1);
    let held = &second["trace"][1];
    let order = format!("{{order:{}}}", second["id"].as_str().unwrap());
    assert_eq!((&held["event"], &held["key"]), (&json!("held"), &json!(order)));
}

#[tokio::test]
async fn wrong_key_spends_one_balance_twice() {
    let lab = Lab::new(2).await;
    let (first, second) = (lab.payment(0, "wrong-key").await, lab.payment(1, "wrong-key").await);
    let first = lab.pause_at(0, first, "read").await;
    second.gives(200).await;
    lab.resume(first, 200).await;
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
        assert_eq!(before(&placed(lab.order(1, strategy)).await), STOCK, "{strategy}");
        let slow = lab.resume(slow, 201).await;
        assert_eq!(before(&slow), STOCK - 1, "{strategy}");
        let slow = lab.pause_at(0, lab.restock(0, strategy), "read").await;
        lab.restock(1, strategy).gives(200).await;
        let slow = lab.resume(slow, 200).await;
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
        let late = lab.pause_at(0, write, "commit").await;
        let raise = format!("update {table} set fence = $1");
        let later = 10_000 * round;
        sqlx::query(AssertSqlSafe(raise)).bind(later).execute(&lab.shop.pool).await.unwrap();
        lab.resume(late, status).await;
        let greatest = format!("select max(fence) from {table}");
        let greatest = sqlx::query_scalar::<_, i64>(AssertSqlSafe(greatest));
        let greatest = greatest.fetch_one(&lab.shop.pool).await.unwrap();
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
            paid.unwrap().gives(200).await;
        }
        let me = lab.shop.read(&lab.alice, "/api/me").await;
        assert_eq!(me["lab_balance_cents"], 100_000 - 6 * 100, "{strategy}");
    }
}

#[tokio::test]
async fn in_process_locks_fork_on_two_replicas() {
    for strategy in ["local", "queue"] {
        let lab = Lab::new(2).await;
        let slow = lab.pause_after_read(0, strategy).await;
        // At the same replica the lock excludes.
        assert_eq!(
            lab.order(0, strategy).header("Holdfast-Wait", "try").fails(423).await,
            "lock-busy",
            "{strategy}"
        );
        assert_eq!(before(&placed(lab.order(1, strategy)).await), STOCK, "{strategy}");
        assert_eq!(before(&lab.resume(slow, 201).await), STOCK, "{strategy}");
        assert_eq!(lab.forks().await, 1, "{strategy}");
        // The audit does not cover lost updates of lab items.
        lab.shop.assert_sound().await;
    }
}

#[test]
fn help_and_documentation_list_every_strategy() {
    let help = |command| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_holdfast")).args([command, "--help"]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let names: Vec<&str> = STRATEGIES.iter().map(|strategy| strategy.name).collect();
    let listed = format!("{} or batched", names[..names.len() - 1].join(", "));
    assert!(help("up").contains(&listed) && help("serve").contains(&listed), "{listed}");
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
    for strategy in STRATEGIES.iter().map(|strategy| strategy.name) {
        let ttl = ("HOLDFAST_LOCK_TTL_MS", "1000");
        let shop = Shop::start_with(1, &[("HOLDFAST_LOCK", strategy), ttl]).await;
        let alice = shop.sign_in("alice").await;
        let order = shop.order(&alice, 0, "deadbolt", 1).send().await.unwrap();
        assert_eq!(order.headers()["holdfast-strategy"], strategy);
        let order = order.gives(201).await;
        for action in ["pay", "refund"] {
            shop.act(&alice, 0, &order, action).gives(200).await;
        }
        shop.assert_sound().await;
    }
}
