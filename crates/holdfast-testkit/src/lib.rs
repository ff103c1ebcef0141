//! A shop for tests: real Postgres, real Redis, real replicas.
//!
//! One `holdfast up` per test binary provides the services; every test has its own database (copied
//! from a migrated and seeded template), Redis prefix and replica processes. Everything ends with
//! the test binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

pub mod barrier;
pub mod client;
mod customer_limits;
#[path = "../../holdfast-lock/tests/lock/cut.rs"]
pub mod cut;
mod lock_family;
pub mod observer;
mod order_expiry;
pub mod pause_points;
pub mod pooler;
pub mod ports;
pub mod proxy;
pub mod recorded_state;
pub mod replica;
pub mod tls;
#[path = "../../holdfast-lock/tests/topology/mod.rs"]
pub mod topology;
pub mod up;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use argon2::PasswordHasher as _;
use futures_util::future::join_all;
use holdfast_lock::{Redis, Settings};
use holdfast_services::{RunningUp, read_env};
use holdfast_shop::locks::ShopLocks;
use holdfast_shop::seed::{self, SeedContents};
use holdfast_shop::{DEFAULT_PAYMENT_WINDOW, Shop, Strategy, UserId};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::OnceCell;
use uuid::Uuid;

pub use client::{Call, Reply, Sent, User, assert_has, fresh_key, id_of};
pub use replica::{Replica, Replicas};
use tls::TlsServers;

/// Time after which a test fails if a condition is still false.
pub const CONDITION_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which the locks of a process that died are free: items', accounts' and keys'.
pub const LEASE: Duration = Duration::from_secs(3);

/// Time that a busy machine may add to one that the product promises. A bound of a test is the sum;
/// what the product would do without the promise takes longer (`tests/tidy/times.rs` lists them).
pub const BUSY_MACHINE: Duration = Duration::from_secs(4);

/// The services of this test binary (one `holdfast up`).
pub struct Services {
    pub running: RunningUp,
    pub data: PathBuf,
    /// The servers of the shops, instead of those of `up`, with `HOLDFAST_TEST_TLS=1`.
    tls: Option<TlsServers>,
    _up: Child,
}

pub fn services() -> &'static Services {
    static SERVICES: OnceLock<Services> = OnceLock::new();
    SERVICES.get_or_init(|| {
        let data = up::data_folder("holdfast-test-").keep();
        let port = ports::free_ports(1);
        // Statics are not dropped, so nothing would stop `up` after the tests. The shell in between
        // sees its standard input close when this process ends, even if it is killed. It removes
        // the folder too, which the tests have filled. It closes its own output, which otherwise
        // would not end with an `up` that does not start.
        let script = "data=$1; shift; \"$@\" --data \"$data\" </dev/null & pid=$!; exec >&-; \
                      read -r _; kill -TERM $pid; wait $pid; rm -rf \"$data\"";
        let mut up = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&data)
            .arg(program())
            .args(["up", "--replicas", "1", "--redlock", "3"])
            .args(["--listen", &format!("127.0.0.1:{port}"), "--lab", "on"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(up.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.contains("ready"), "up did not start: {ready:?}");
        let mut running = read_env(&data).expect("a ready up has an env file");
        let tls = std::env::var_os("HOLDFAST_TEST_TLS").map(|_| TlsServers::start());
        if let Some(servers) = &tls {
            running.database_url = servers.socket_url("holdfast");
            running.redis_url = servers.redis_socket_url();
        }
        Services { running, data, tls, _up: up }
    })
}

/// The program that is tested.
pub fn program() -> PathBuf {
    // Without Cargo, a test binary is in the folder `deps` beside it.
    let beside = || std::env::current_exe().unwrap().parent().unwrap().with_file_name("holdfast");
    std::env::var_os("CARGO_BIN_EXE_holdfast").map_or_else(beside, PathBuf::from)
}

/// Runs the program to its end.
pub fn run_program(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).envs(environment.iter().copied()).output().unwrap()
}

pub struct TestShop {
    pub database: String,
    pub pool: PgPool,
    pub prefix: String,
    pub replicas: Replicas,
    pub http: reqwest::Client,
}

impl TestShop {
    /// With `replicas` replicas, the default strategy, and lab mode on.
    pub async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[]).await
    }

    pub async fn start_with(replicas: usize, env: &[(&str, &str)]) -> Self {
        let mut shop = Self::without_replicas().await;
        for _ in 0..replicas {
            shop.add_replica(env);
        }
        shop
    }

    /// Starts two replicas for each case, and then checks all cases at once, as they mostly wait.
    pub async fn check_each<T>(
        cases: impl IntoIterator<Item = T>,
        env: &[(&str, &str)],
        check: impl AsyncFn(Self, T),
    ) {
        // A start blocks this thread: the connections of cases that had begun would be idle for so
        // long that the replicas close them.
        let mut shops = Vec::new();
        for case in cases {
            shops.push((Self::start_with(2, env).await, case));
        }

        let check = &check;
        join_all(shops.into_iter().map(|(shop, case)| check(shop, case))).await;
    }

    /// Starts two replicas that know each other, as those of `holdfast up` do.
    pub async fn with_peers(env: &[(&str, &str)]) -> Self {
        let port = ports::free_ports(2);
        let addresses = [port, port + 1].map(|port| format!("127.0.0.1:{port}"));
        let urls = addresses.clone().map(|address| format!("http://{address}")).join(",");
        let mut shop = Self::without_replicas().await;
        for address in &addresses {
            let own = [("HOLDFAST_LISTEN", address.as_str()), ("HOLDFAST_REPLICAS", &urls)];
            shop.add_replica(&[&own, env].concat());
        }
        shop
    }

    pub async fn without_replicas() -> Self {
        Self::from_template(template().await).await
    }

    async fn from_template(template: &str) -> Self {
        let database = format!("test_{}", Uuid::new_v4().simple());
        // Half of the time of the other strategy, which writes each page of the copy to the log.
        let copy = format!("create database {database} template {template} strategy file_copy");
        admin(&copy).await;
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect_with(options().database(&database))
            .await
            .unwrap();
        let prefix = format!("test-{}:", Uuid::new_v4().simple());
        // A replica closes a connection that is idle for five seconds. This client does so sooner:
        // otherwise it could send a request on a connection that is being closed.
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(20))
            .pool_idle_timeout(Duration::from_secs(2))
            .build()
            .unwrap();
        Self { database, pool, prefix, replicas: Replicas::default(), http }
    }

    /// The same shop in this process, beside its replicas: same database, same Redis prefix.
    pub fn in_process(&self, strategy: &str) -> Shop {
        self.in_process_with_redis(strategy, &services().running.redis_url)
    }

    pub fn in_process_with_redis(&self, strategy: &str, redis_url: &str) -> Shop {
        let settings = Settings::default().with_key_prefix(&self.prefix);
        let pool = holdfast_shop::db::pool(&self.database_url(), 4).unwrap();
        let locks = ShopLocks::new(Redis::open(redis_url).unwrap(), Vec::new(), settings).unwrap();
        let strategy = Strategy::named(strategy).unwrap();
        Shop::new(pool, locks, strategy, DEFAULT_PAYMENT_WINDOW)
    }

    /// A shop with a copy of the database, without replicas.
    pub async fn copy(&self) -> Self {
        Self::from_template(&self.database).await
    }

    /// Adds a replica; later variables override earlier ones.
    pub fn add_replica(&mut self, env: &[(&str, &str)]) {
        self.add_replica_with(Replica::start, env);
    }

    pub fn add_replica_with(
        &mut self,
        start: impl FnOnce(&[(&str, &str)]) -> Replica,
        env: &[(&str, &str)],
    ) {
        let replica = self.with_environment(env, start);
        self.replicas.push(replica);
    }

    /// Adds a replica with these flags. The error is what it printed before it exited.
    pub fn try_add_replica(&mut self, flags: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
        let replica = self.with_environment(env, |all| Replica::try_start(flags, all))?;
        self.replicas.push(replica);
        Ok(())
    }

    /// Lets the next replica start under a strategy that does not exclude that of the others.
    pub async fn forget_lock_family(&self) {
        sqlx::query("delete from lock_family").execute(&self.pool).await.unwrap();
    }

    fn with_environment<T>(
        &self,
        env: &[(&str, &str)],
        start: impl FnOnce(&[(&str, &str)]) -> T,
    ) -> T {
        let url = self.database_url();
        let redis = redis_settings(env);
        let mut all = vec![
            ("DATABASE_URL", url.as_str()),
            ("HOLDFAST_REDIS_PREFIX", self.prefix.as_str()),
            ("HOLDFAST_LAB", "on"),
            ("HOLDFAST_LOCAL_VISITORS", "on"),
            ("HOLDFAST_LOCK", "batched"),
            ("HOLDFAST_UNSAFE_LOCK", "on"),
            // The hourly audit would disturb tests that look at every row, lock or statement.
            ("HOLDFAST_JOBS", "off"),
        ];
        all.extend(redis.iter().map(|(name, value)| (*name, value.as_str())));
        all.extend(env);
        start(&all)
    }

    pub fn database_url(&self) -> String {
        if let Some(servers) = &services().tls {
            return servers.database_url(&self.database);
        }
        let url = &services().running.database_url;
        url.replace("postgres:///holdfast?", &format!("postgres:///{}?", self.database))
    }

    pub fn url(&self, replica: usize, path: &str) -> String {
        format!("{}{path}", self.replicas[replica].base_url)
    }

    /// A client without a session.
    pub fn anonymous(&self) -> User {
        User {
            name: String::new(),
            token: String::new(),
            http: self.http.clone(),
            base_urls: self.replicas.base_urls.clone(),
            replica: 0,
        }
    }

    /// Signs in; the password is the name.
    pub async fn sign_in(&self, name: &str) -> User {
        self.sign_in_at(0, name).await
    }

    /// Signs in at that replica, to which the user's calls go.
    pub async fn sign_in_at(&self, replica: usize, name: &str) -> User {
        self.anonymous().at(replica).session_of(name).await
    }

    /// Makes a user an admin, who may send lab headers with the shop's own items, and signs in.
    pub async fn promoted(&self, name: &str) -> User {
        let promote = sqlx::query("update users set admin = true where name = $1").bind(name);
        promote.execute(&self.pool).await.unwrap();
        self.sign_in(name).await
    }

    pub async fn user_id(&self, name: &str) -> UserId {
        let id = sqlx::query_scalar("select id from users where name = $1").bind(name);
        UserId(id.fetch_one(&self.pool).await.unwrap())
    }

    /// Creates an item of the lab; returns its sku.
    pub async fn lab_item(&self, stock: i64) -> String {
        let admin = self.sign_in("admin").await;
        let item = admin.creates_lab_item(&json!({ "stock": stock })).ok().await;
        item["sku"].as_str().unwrap().to_owned()
    }

    /// Waits until no process has the lock of an item. A leader keeps it for a moment after its
    /// last order, and executes one that arrives in that time without Redis.
    pub async fn until_item_is_free(&self, sku: &str) {
        let admin = self.sign_in("admin").await;
        let lock = format!("lock:{{sku:{sku}}}");
        until("the item's lock is free", async || {
            let locks = admin.reads("/api/locks").await;
            let mut keys = locks.as_array().unwrap().iter().map(|held| &held["key"]);
            !keys.any(|key| key.as_str().unwrap().ends_with(&lock))
        })
        .await;
    }

    pub async fn stock(&self, sku: &str) -> i64 {
        let item = self.anonymous().reads(&format!("/api/items/{sku}")).await;
        item["stock"].as_i64().unwrap()
    }

    pub async fn item_audit(&self, sku: &str) -> Value {
        self.item_audit_at(0, sku).await
    }

    pub async fn item_audit_at(&self, replica: usize, sku: &str) -> Value {
        self.anonymous().at(replica).reads(&format!("/api/items/{sku}/audit")).await
    }

    pub async fn audit(&self) -> holdfast_shop::audit::AuditReport {
        holdfast_shop::audit::check_all(&self.pool.clone().into(), None, |_| {}).await.unwrap()
    }

    pub async fn failing_checks(&self) -> Vec<String> {
        let audit = self.audit().await;
        audit.checks.into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
    }

    pub async fn assert_sound(&self) {
        let audit = self.audit().await;
        assert!(audit.ok, "{:#?}", audit.checks.iter().filter(|c| !c.ok).collect::<Vec<_>>());
    }

    pub async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.pool).await.unwrap();
    }

    /// The number of sessions of the test's own database that wait for a lock.
    pub async fn waiting_sessions(&self) -> i64 {
        self.number(
            "select count(*) from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock'",
        )
        .await
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }
}

/// The settings of a replica with that environment for the Redis servers of the services.
fn redis_settings(env: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let Services { running, tls, .. } = services();
    // A test with a Redis of its own has one without TLS.
    if let Some(servers) =
        tls.as_ref().filter(|_| !env.iter().any(|(name, _)| *name == "REDIS_URL"))
    {
        let urls = [("REDIS_URL", servers.redis_url()), ("REDLOCK_URLS", servers.redlock_urls())];
        return urls.into_iter().chain(servers.redis_settings()).collect();
    }
    vec![("REDIS_URL", running.redis_url.clone()), ("REDLOCK_URLS", running.redlock_urls.join(","))]
}

/// Polls until `condition` holds; fails after [`CONDITION_TIMEOUT`].
pub async fn until<F: AsyncFnMut() -> bool>(what: &str, condition: F) {
    until_within(CONDITION_TIMEOUT, what, condition).await;
}

/// [`until`] with a time of its own.
pub async fn until_within<F: AsyncFnMut() -> bool>(time: Duration, what: &str, mut condition: F) {
    let deadline = Instant::now() + time;
    while !condition().await {
        assert!(Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn options() -> PgConnectOptions {
    services().running.database_url.parse().unwrap()
}

/// A statement on the services' own database.
async fn admin(sql: &str) {
    use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
    let mut connection = sqlx::PgConnection::connect_with(&options()).await.unwrap();
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    connection.close().await.unwrap();
}

/// Stores the passwords of all users, which are their names, as hashes that cost next to nothing:
/// each replica compares them when it starts, and each test signs in.
async fn rehash_passwords(database: &str) {
    let params = argon2::Params::new(argon2::Params::MIN_M_COST, 1, 1, None).unwrap();
    let hasher = argon2::Argon2::new(argon2::Algorithm::default(), Default::default(), params);
    let pool = PgPool::connect_with(options().database(database)).await.unwrap();
    let names = sqlx::query_scalar("select name from users").fetch_all(&pool);
    let names: Vec<String> = names.await.unwrap();

    for name in names {
        let hash = hasher.hash_password(name.as_bytes()).unwrap().to_string();
        let update = sqlx::query("update users set password_hash = $1 where name = $2");
        update.bind(hash).bind(name).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

/// A database with schema and seed, to be copied.
async fn template() -> &'static str {
    static TEMPLATE: OnceCell<&str> = OnceCell::const_new();
    TEMPLATE
        .get_or_init(|| async {
            // Its worker would visit hundreds of databases in turn, which are gone in minutes.
            admin("alter system set autovacuum = off").await;
            admin("select pg_reload_conf()").await;
            admin("create database template_shop").await;
            let url = services()
                .running
                .database_url
                .replace("postgres:///holdfast?", "postgres:///template_shop?");
            holdfast_shop::db::migrate(&url).await.unwrap();
            let pool = holdfast_shop::db::pool(&url, 2).unwrap();
            assert!(seed::seed(&pool, SeedContents::EVERYTHING).await.unwrap());
            // A template with open connections can't be copied.
            pool.close().await;
            // Boxed: each test's future would be larger by it.
            Box::pin(rehash_passwords("template_shop")).await;
            "template_shop"
        })
        .await
}
