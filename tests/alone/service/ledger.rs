//! `holdfast ledger` on nine modes of the shop: forks are where an order has overwritten what
//! another one wrote, and nowhere else.
//!
//! Six have none. In `check-then-decrement`, `no-check` and `two-transactions` Postgres subtracts
//! from what is there: no write is lost, but the first two sell more than there was, and the third,
//! killed between the two, leaves a unit without an order. The judge finds these. The other three
//! are right: `row-lock` reads under the lock of the row, `conditional` checks in the write, and in
//! `serializable` Postgres refuses the second write, whose transaction leaves no entry.

use std::path::Path;

use holdfast_services::{TempFolder, TempPostgres, TempRedis, tied_command};
use holdfast_testkit::topology::free_ports;
use holdfast_testkit::{CONDITION_TIMEOUT, run_program, until};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::{NOTHING, SHOP, installed};
use crate::{SharedMachine, share_machine};

const BUYERS: i64 = 8;
const STOCK: i64 = 5;
/// While a session has locked the table `gate`, no transaction that has written the stock ends. The
/// next order reads the older stock, unless it asks for the lock of the row.
const GATE: &str = "
    create table gate ();
    create function pass_gate() returns trigger language plpgsql as $$
    begin perform from gate; return null; end $$;
    create constraint trigger pass_gate after update on products
      deferrable initially deferred for each row execute function pass_gate()";
const LEDGER: [&str; 7] = ["ledger", "--table", "products", "--key", "id", "--value", "stock"];
const WAITING: &str = "select count(*) from pg_locks where not granted";
const STOCK_AND_WRITES: &str = "
    select stock::bigint, (select count(*) from products_stock_ledger where is_update)
      from products";

/// The servers, in which each mode has a database of its own.
struct Servers {
    postgres: TempPostgres,
    redis: TempRedis,
    folder: TempFolder,
    http: Client,
    _machine: SharedMachine,
}

#[derive(Debug)]
struct Sale {
    /// The checks of the ledger that fail.
    failing: Vec<String>,
    sold: i64,
    /// Units that were sold and are still in stock.
    lost: i64,
}

impl Servers {
    async fn start() -> Self {
        let _machine = share_machine();
        let folder = TempFolder::create().unwrap();
        let postgres = TempPostgres::start(&folder).await.unwrap();
        let redis = TempRedis::start().await.unwrap();
        let http = Client::builder().timeout(CONDITION_TIMEOUT).build().unwrap();
        Self { postgres, redis, folder, http, _machine }
    }

    fn url(&self, mode: &str) -> String {
        self.postgres.url_of(&mode.replace('-', "_"))
    }

    /// A program of Python, with the environment of the shop.
    fn program(&self, name: &str, mode: &str) -> Command {
        let (python, _) = installed();
        let redis = format!("redis://:{}@127.0.0.1:{}", self.redis.password, self.redis.port);
        let mut command = tied_command(&python.join(name), "KILL");
        command.current_dir(Path::new(SHOP).parent().unwrap());
        command.env("MODE", mode).env("DATABASE_URL", self.url(mode)).env("REDIS_URL", redis);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Creates the database of a mode: the tables of the shop, an item, the gate and the ledger.
    async fn create_shop(&self, mode: &str) -> PgConnection {
        self.postgres.create_database(&mode.replace('-', "_")).await.unwrap();
        let mut schema = self.program("python", mode);
        let made = schema.args(["schema.py"]).status().await.unwrap();
        assert!(made.success(), "{mode}: {made}");

        let mut session = PgConnection::connect(&self.url(mode)).await.unwrap();
        session.execute(GATE).await.unwrap();
        let item = format!("insert into products values ('tea', {STOCK})");
        session.execute(AssertSqlSafe(item)).await.unwrap();
        let ledger = String::from_utf8(run_program(&LEDGER, &[]).stdout).unwrap();
        sqlx::raw_sql(AssertSqlSafe(ledger)).execute(&mut session).await.unwrap();
        session
    }

    /// Starts two instances, which end with the values.
    async fn start_instances(&self, mode: &str) -> ([u16; 2], [Child; 2]) {
        let ports: [u16; 2] = free_ports();
        let instances = ports.map(|port| {
            let mut instance = self.program("uvicorn", mode);
            instance.args(["shop:app", "--log-level", "warning", "--port", &port.to_string()]);
            instance.spawn().unwrap()
        });
        for port in ports {
            let health = format!("http://127.0.0.1:{port}/health");
            let is_ready = async || self.http.get(&health).send().await.is_ok();
            until(&format!("an instance of {mode} is ready"), is_ready).await;
        }
        (ports, instances)
    }

    /// Sells to all buyers at once. The gate opens when so many of them wait for a lock.
    async fn sell(&self, mode: &str, waiting: i64) -> Sale {
        let mut session = self.create_shop(mode).await;
        let (ports, _instances) = self.start_instances(mode).await;

        session.execute("begin; lock table gate").await.unwrap();
        let buyers = ports.into_iter().cycle().zip(0..BUYERS);
        let orders: JoinSet<bool> =
            buyers.map(|(port, buyer)| order(self.http.clone(), port, buyer)).collect();
        until(&format!("{waiting} orders of {mode} wait"), async || {
            let now: i64 = sqlx::query_scalar(WAITING).fetch_one(&mut session).await.unwrap();
            now >= waiting
        })
        .await;
        session.execute("commit").await.unwrap();
        let sold: i64 = orders.join_all().await.into_iter().map(i64::from).sum();

        let (stock, writes): (i64, i64) =
            sqlx::query_as(STOCK_AND_WRITES).fetch_one(&mut session).await.unwrap();
        assert_eq!(writes, sold, "{mode}: a write that Postgres has refused is no entry");
        Sale { failing: failing_checks(&self.url(mode)), sold, lost: stock + sold - STOCK }
    }

    async fn stop(self) {
        self.postgres.stop().await;
        drop(self.folder);
    }
}

/// Returns whether it was sold.
async fn order(http: Client, port: u16, buyer: i64) -> bool {
    let order = json!({ "product": "tea", "quantity": 1, "buyer": buyer });
    let request = http.post(format!("http://127.0.0.1:{port}/orders")).json(&order);
    let request = request.header("Idempotency-Key", format!("key-{buyer}"));
    request.send().await.unwrap().status() == StatusCode::CREATED
}

fn failing_checks(url: &str) -> Vec<String> {
    let audited = run_program(&["ledger", "audit", "--json"], &[("DATABASE_URL", url)]);
    let report: Value = serde_json::from_slice(&audited.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let failing = checks.filter(|check| check["ok"] == false);
    failing.map(|check| check["name"].as_str().unwrap().to_owned()).collect()
}

/// In `redis-lock`, the second order comes to the row when the lease of the first one is over. In
/// `lock-before-commit`, it does so at once, and the others wait for the lock that it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_that_overwrites_another_one_is_a_fork() {
    let servers = Servers::start().await;
    let modes = [("read-then-write", BUYERS), ("redis-lock", 2), ("lock-before-commit", BUYERS)];
    for (mode, waiting) in modes {
        let sale = servers.sell(mode, waiting).await;
        assert_eq!(sale.failing, ["public.products_stock_ledger forks"], "{mode}: {sale:?}");
        assert!(sale.lost > 0, "{mode}: {sale:?}");
    }
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_that_overwrites_none_is_no_fork() {
    let servers = Servers::start().await;
    for (mode, sold) in [
        ("check-then-decrement", BUYERS),
        ("no-check", BUYERS),
        ("two-transactions", STOCK),
        ("row-lock", STOCK),
        ("conditional", STOCK),
        ("serializable", STOCK),
    ] {
        let sale = servers.sell(mode, BUYERS).await;
        assert_eq!(sale.failing, NOTHING, "{mode}: {sale:?}");
        assert_eq!((sale.sold, sale.lost), (sold, 0), "{mode}: {sale:?}");
    }
    servers.stop().await;
}
