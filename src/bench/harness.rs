//! The shop under test, emptied before each run and audited after it, and its counters.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use holdfast_lock::Redis;
use serde_json::Value;
use tokio::time::sleep;

use super::database::{OWN_CONNECTIONS, check_own};
use super::floor;
use super::requests::{self, MIX, lock, order};
use super::results::{Machine, SharedServers};
use super::runs::{
    AuditSummary, BASELINE, BenchRun, Costs, CpuMicros, MANY_CLIENTS, NO_STRATEGY, REPLICAS, Round,
    SPREAD_ITEMS, Spread, Task, is_success,
};
use super::servers::{Site, Tenancy};
use holdfast_services::CpuTime;
use holdfast_services::load::{self, LoadClient, LoadPlan, LoadReport, Posts};
use holdfast_shop::command::MAX_AMOUNT;
use holdfast_shop::db::{self, Pool};
use holdfast_shop::store::accounts::open_lab_account;
use holdfast_shop::strategy::units::statements::MAX_UNITS;
use holdfast_shop::{Sku, Strategy, UserId, audit, passwords, sessions, users};

/// The default price of a lab item.
const PRICE_CENTS: u64 = 100;
/// Approximate number of payments per user and second of a run.
const PAYMENTS_PER_SECOND: f64 = 12.0;
const SETUP_STRATEGY: &str = "atomic";
/// Number of messages of which the median is the round trip to a server.
const ROUND_TRIPS: usize = 30;
/// Time in which the ledger entries of a run are written at the latest.
const SETTLEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at them: each reads the item's latest entries.
const SETTLEMENT_PAUSE: Duration = Duration::from_millis(50);
/// The counter of forwarded commands at `/metrics`, up to the value of its label.
const FORWARDED: &str = "holdfast_forwarded_commands_total{result=\"";

pub(super) fn warm_up(length: Duration) -> Duration {
    length.mul_f64(0.3).min(Duration::from_secs(3))
}

#[derive(Debug)]
pub(super) struct Harness {
    pool: Pool,
    /// The shop's Redis, then the nodes of the quorum.
    redis: Vec<Redis>,
    tenancy: Tenancy,
    replicas: Vec<SocketAddr>,
    up: Option<i32>,
    users: Vec<(UserId, String)>,
    admin: String,
}

impl Harness {
    /// Creates the users and their sessions.
    pub(super) async fn open(site: Site, clients: usize) -> anyhow::Result<Self> {
        let Site { database_url, database, redis, replicas, up, tenancy } = site;
        let pool = db::pool(&database_url, OWN_CONNECTIONS)?;
        if let Some(name) = database {
            let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
            check_own(&mut connection, &name).await?;
        }

        let mut clients = clients;
        if tenancy == Tenancy::Alone {
            preallocate_wal(&pool).await?;
            clients = clients.max(MANY_CLIENTS);
        }

        let mut users = sign_in(&pool, clients + 1).await?;
        let (_, admin) = users.pop().context("an admin")?;
        Ok(Self { pool, redis, tenancy, replicas, up, users, admin })
    }

    pub(super) async fn describe_machine(&mut self) -> anyhow::Result<Machine> {
        let postgres: String = sqlx::query_scalar("show server_version")
            .fetch_one(&mut *self.connection().await?)
            .await?;
        // A user may lack the right to ask.
        let info = self.redis[0].query(redis::cmd("INFO").arg("server").to_owned()).await;
        let info: String = info.unwrap_or_default();
        // Valkey also claims to be a version of Redis.
        let redis = match info_field(&info, "valkey_version:") {
            Some(valkey) => format!("Valkey {valkey}"),
            None => format!(
                "Redis {}",
                info_field(&info, "redis_version:").unwrap_or("of an unknown version")
            ),
        };

        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Ok(Machine {
            date: time::OffsetDateTime::now_utc().date().to_string(),
            holdfast: env!("CARGO_PKG_VERSION"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu.map_or("unknown processor", |(_, name)| name).to_owned(),
            postgres: postgres.split(' ').next().unwrap_or_default().to_owned(),
            redis,
            yours: match self.tenancy {
                Tenancy::Alone => None,
                Tenancy::Shared { pool_size } => Some(self.describe_servers(pool_size).await?),
            },
        })
    }

    async fn describe_servers(&self, pool_size: u32) -> anyhow::Result<SharedServers> {
        let mut connection = self.connection().await?;
        let settings = "select current_setting('fsync'), current_setting('synchronous_commit')";
        let (fsync, synchronous_commit) =
            sqlx::query_as(settings).fetch_one(&mut *connection).await?;

        let mut postgres = Vec::new();
        let mut redis = Vec::new();
        for _ in 0..ROUND_TRIPS {
            let sent = Instant::now();
            sqlx::raw_sql("select 1").execute(&mut *connection).await?;
            postgres.push(sent.elapsed().as_secs_f64() * 1e3);

            let sent = Instant::now();
            let _: String = self.redis[0].query(redis::cmd("PING")).await?;
            redis.push(sent.elapsed().as_secs_f64() * 1e3);
        }

        let median = |times| Spread::of(times).map_or(0.0, |spread| spread.median);
        let (postgres_ms, redis_ms) = (median(postgres), median(redis));
        Ok(SharedServers { postgres_ms, redis_ms, fsync, synchronous_commit, pool_size })
    }

    /// Empties the shop, runs the load, and audits the books.
    pub(super) async fn run(&mut self, run: BenchRun, length: Duration) -> anyhow::Result<Round> {
        self.empty().await?;
        let (plan, skus) = self.plan(run, length).await?;
        let before = self.counters().await?;
        let report = match run.task {
            Task::Floor => self.floor(&skus[0], run.clients, length).await?,
            _ => load::run(plan).await?,
        };
        // The work that a data path puts off is a cost of its orders.
        let puts_off = |it: &Strategy| it.data_path.is_some() && !it.has_own_items();
        if Strategy::named(run.strategy).is_some_and(puts_off) {
            self.await_settlement(&skus).await?;
        }
        let counters = before.zip(self.counters().await?);

        let mut audit = self.audit(&skus).await?;
        if run.task == Task::Hot && audit.least_stock == Some(0) {
            audit.ok = false;
            audit.failed.push("sold out before the end: not a rate of sales".to_owned());
        }
        Ok(Round::new(&report, run.task, counters, audit))
    }

    /// Waits until each order has its ledger entries.
    async fn await_settlement(&self, skus: &[Sku]) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut connection = self.connection().await?;

        for sku in skus {
            loop {
                let summary = audit::summary(&mut connection, sku).await?;
                if summary.is_none_or(|summary| summary.unsettled == 0) {
                    break;
                }
                anyhow::ensure!(started.elapsed() < SETTLEMENT_TIMEOUT, "orders are not settled");
                sleep(SETTLEMENT_PAUSE).await;
            }
        }
        Ok(())
    }

    async fn floor(
        &self,
        sku: &Sku,
        orders: usize,
        length: Duration,
    ) -> anyhow::Result<LoadReport> {
        let buyers: Vec<UserId> = self.users.iter().take(orders).map(|(user, _)| *user).collect();
        let times = [warm_up(length), length];
        floor::measure(&self.pool, &self.redis[0], sku, &buyers, times).await
    }

    async fn plan(
        &mut self,
        run: BenchRun,
        length: Duration,
    ) -> anyhow::Result<(LoadPlan, Vec<Sku>)> {
        let BenchRun { strategy, task, clients: n, replicas } = run;
        let in_units = Strategy::named(strategy).is_some_and(Strategy::has_own_items);
        let (items, stock) = match task {
            Task::Hot if in_units => (1, MAX_UNITS),
            Task::Hot | Task::NoOp | Task::Floor => (1, MAX_AMOUNT),
            Task::SoldOut => (1, 0),
            Task::Spread => (SPREAD_ITEMS, MAX_AMOUNT),
            Task::Payments => (n, MAX_AMOUNT),
            Task::Mixed | Task::MixedRoundRobin | Task::MixedUneven => (2, MAX_AMOUNT),
        };
        let skus = self.items(items, stock, in_units).await?;

        // The no-op takes no lock, but parses the header like the others.
        let headers = [lock(if strategy == NO_STRATEGY { BASELINE } else { strategy })];
        let clients = if task == Task::Payments {
            self.payers(&skus, n, &headers, length).await?
        } else if task.is_mixed() {
            self.mixed_clients([&skus[0], &skus[1]], run)
        } else {
            let path = if strategy == NO_STRATEGY { "/api/lab/noop" } else { "/api/orders" };
            let bodies: Vec<String> = skus.iter().map(|sku| order(&[sku])).collect();
            let mut clients = Vec::with_capacity(n);
            for (i, (_, token)) in self.users.iter().take(n).enumerate() {
                // Spread over the items: all would else begin at the same one.
                let from = i * bodies.len() / n;
                clients.push(
                    self.client(i % replicas, Posts::new(path, token, &headers, &bodies, from)),
                );
            }
            clients
        };

        let fixed = task == Task::Payments;
        let warm_up = if fixed { Duration::ZERO } else { warm_up(length) };
        let window = (!fixed).then_some(length);
        let expected = task.expected();
        Ok((LoadPlan { clients, warm_up, window, expected, observe: false, live: None }, skus))
    }

    fn mixed_clients(
        &self,
        skus: [&Sku; 2],
        BenchRun { task, clients, replicas, .. }: BenchRun,
    ) -> Vec<LoadClient> {
        let users = self.users.iter().take(clients).enumerate();
        let all = users.map(|(i, (_, token))| {
            // Spread over the mix, so that at any time there is some of everything.
            let script = requests::mixed(token, skus, i * MIX / clients);
            match task {
                Task::MixedRoundRobin => {
                    let mut targets = self.replicas[..replicas].to_vec();
                    targets.rotate_left(i % replicas);
                    LoadClient { targets, script }
                }
                Task::MixedUneven if i % 2 == 0 => self.client(0, script),
                _ => self.client(i % replicas, script),
            }
        });
        all.collect()
    }

    /// Prepares users with money and unpaid orders; returns the clients that pay for them.
    async fn payers(
        &self,
        skus: &[Sku],
        users: usize,
        headers: &[String],
        length: Duration,
    ) -> anyhow::Result<Vec<LoadClient>> {
        let each = (PAYMENTS_PER_SECOND * length.as_secs_f64()).clamp(3.0, 1_000.0) as u64;
        let money = i64::try_from(each * PRICE_CENTS)?;
        let by = [lock(SETUP_STRATEGY)];

        let mut order_clients = Vec::new();
        for (i, (user, token)) in self.users.iter().take(users).enumerate() {
            open_lab_account(&self.pool, *user, money).await?;
            let bodies = [order(&[&skus[i % skus.len()]])];
            let order = Posts::new("/api/orders", token, &by, &bodies, 0).limit(each);
            order_clients.push(self.client(i % REPLICAS, order));
        }

        let mut orders = vec![Vec::new(); users];
        for (buyer, id) in run_setup(order_clients, "id").await? {
            orders[buyer].push(format!("/api/orders/{id}/pay"));
        }
        let paying = self.users.iter().zip(orders).enumerate().map(|(i, ((_, token), paths))| {
            self.client(i % REPLICAS, Posts::to_paths(&paths, token, headers))
        });
        Ok(paying.collect())
    }

    fn client(&self, replica: usize, script: Posts) -> LoadClient {
        LoadClient { targets: vec![self.replicas[replica]], script }
    }

    async fn items(&self, count: usize, stock: i64, in_units: bool) -> anyhow::Result<Vec<Sku>> {
        let body = [format!("{{\"stock\":{stock},\"in_units\":{in_units}}}")];
        let script = Posts::new("/api/lab/items", &self.admin, &[], &body, 0).limit(count as u64);
        let made = run_setup(vec![self.client(0, script)], "sku").await?;
        let skus = made.into_iter().map(|(_, sku)| Sku::try_from(sku).ok());
        skus.collect::<Option<Vec<Sku>>>().context("an item's name")
    }

    /// Deletes items, orders, ledgers and lab accounts, so that every run begins with the same
    /// small tables. Keeps users, with a balance of 0, and their sessions.
    async fn empty(&self) -> anyhow::Result<()> {
        let mut tx = self.pool.begin().await.map_err(|(_, error)| error)?;
        // A transaction may still hold locks after the timeout of its request.
        sqlx::raw_sql(
            "set local lock_timeout = '30s';
             truncate items, orders, order_lines, idempotency, top_ups, stock_ledger, balance_ledger,
                 item_units cascade;
             delete from accounts where kind = 'lab';
             delete from users where lab_account_of is not null;
             update accounts set balance_cents = 0 where balance_cents <> 0",
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;

        // It would disturb others, and the user may not have the right.
        if self.tenancy != Tenancy::Alone {
            return Ok(());
        }
        // Otherwise the disk is busy with the previous run, or with a checkpoint during this one.
        sqlx::raw_sql("checkpoint").execute(&mut *self.connection().await?).await?;
        Ok(())
    }

    /// Audits the items' ledgers, and everything that `holdfast audit` checks.
    async fn audit(&self, skus: &[Sku]) -> anyhow::Result<AuditSummary> {
        let whole = audit::check_all(&self.pool, None, |_| {}).await?;
        let failed = whole.checks.iter().filter(|check| !check.ok);
        let failed = failed.map(|check| format!("{}: {}", check.name, check.detail)).collect();
        let mut summary = AuditSummary { ok: whole.ok, failed, ..AuditSummary::default() };

        let audits = skus.iter().map(|sku| audit::check_item(&self.pool, sku));
        let mut audits =
            futures_util::stream::iter(audits).buffer_unordered(OWN_CONNECTIONS as usize);
        while let Some(item) = audits.next().await {
            summary.add(&item?.context("the item has gone")?);
        }
        Ok(summary)
    }

    async fn connection(&self) -> anyhow::Result<holdfast_shop::db::Connection> {
        Ok(self.pool.acquire().await.map_err(|(_, error)| error)?)
    }

    /// Returns the counters, summed over all Redis servers; `None` if they also count others' work.
    async fn counters(&self) -> anyhow::Result<Option<Costs>> {
        if self.tenancy != Tenancy::Alone {
            return Ok(None);
        }

        // Each transaction that writes takes one transaction id; a few others do, too.
        let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
        let next: i64 = sqlx::query_scalar(next).fetch_one(&mut *self.connection().await?).await?;
        let mut reads = 0.0;
        for redis in &self.redis {
            let stats: String = redis.query(redis::cmd("INFO").arg("stats").to_owned()).await?;
            let count = info_field(&stats, "total_reads_processed:");
            reads += count.context("Redis does not count its reads")?.parse::<f64>()?;
        }
        let (forwarded, returned) = self.forwarded().await?;
        let cpu = self.up.and_then(CpuTime::below).map(CpuMicros::from);
        Ok(Some(Costs { redis_reads: reads, writes: next as f64, forwarded, returned, cpu }))
    }

    /// Returns how many forwarded commands the replicas have counted, and how many of them came
    /// back unexecuted.
    async fn forwarded(&self) -> anyhow::Result<(f64, f64)> {
        let (mut forwarded, mut returned) = (0.0, 0.0);
        for replica in &self.replicas {
            let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let (_, body) = load::send(*replica, request).await?;
            let body = String::from_utf8(body)?;

            for line in body.lines().filter_map(|line| line.strip_prefix(FORWARDED)) {
                let (result, count) = line.split_once("\"} ").context("the counter's value")?;
                let count: f64 = count.parse()?;
                forwarded += count;
                if result == "returned" {
                    returned += count;
                }
            }
        }
        Ok((forwarded, returned))
    }
}

fn info_field<'t>(info: &'t str, name: &str) -> Option<&'t str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name))
}

/// Creates Postgres' WAL segments ahead of time, 1 GB by default, and keeps them.
///
/// A new cluster creates each segment (16 MB) when it needs it: all commits wait 20 to 50 ms, once
/// a second at ten thousand orders a second. A cluster that has run for a day recycles old
/// segments, and that is the state to measure.
async fn preallocate_wal(pool: &Pool) -> anyhow::Result<()> {
    let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
    let (most, files): (String, i64) = sqlx::query_as(
        "select current_setting('max_wal_size'),
                pg_size_bytes(current_setting('max_wal_size'))
                    / pg_size_bytes(current_setting('wal_segment_size'))",
    )
    .fetch_one(&mut *connection)
    .await?;

    for statement in
        [format!("alter system set min_wal_size = '{most}'"), "select pg_reload_conf()".to_owned()]
    {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }

    // `pg_switch_wal` does nothing on a segment without writes.
    let next_file = "select pg_switch_wal() from pg_logical_emit_message(false, 'next', '')";
    for _ in 0..files {
        sqlx::raw_sql(next_file).execute(&mut *connection).await?;
    }
    sqlx::raw_sql("checkpoint").execute(&mut *connection).await?;
    Ok(())
}

/// Creates `count` users, the last an admin, and returns them with a session token of each. Writes
/// to the database directly, because hashing a password is slow by design.
async fn sign_in(pool: &Pool, count: usize) -> anyhow::Result<Vec<(UserId, String)>> {
    let hash = passwords::hash("an unused password".to_owned()).await?;
    let mut tx = pool.begin().await.map_err(|(_, error)| error)?;
    let mut users = Vec::with_capacity(count);
    for i in 1..=count {
        let id = users::insert(&mut tx, &format!("bench-{i}"), &hash, i == count).await?;
        let id = id.context("the shop is not new")?;
        users.push((id, sessions::begin(&mut tx, id).await?.token));
    }
    tx.commit().await?;
    Ok(users)
}

/// Runs clients whose requests must all succeed; returns a field of each response, with the index
/// of its client.
async fn run_setup(clients: Vec<LoadClient>, field: &str) -> anyhow::Result<Vec<(usize, String)>> {
    let plan = LoadPlan { observe: true, ..LoadPlan::new(clients, is_success) };
    let report = load::run(plan).await?;

    let mut made = Vec::with_capacity(report.observations.len());
    for record in report.observations {
        let response = record.response.context("preparing: a connection broke")?;
        let body: Value = serde_json::from_slice(&response.body)?;
        let value = body[field].as_str();
        let value = value.with_context(|| format!("preparing: {}: {body}", response.status))?;
        made.push((record.client, value.to_owned()));
    }
    Ok(made)
}
