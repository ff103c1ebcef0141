//! The composition root: builds one replica and runs it until a signal stops it.

use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::web;
use anyhow::{Context, bail};
use holdfast_lock::observer::MetricsObserver;
use holdfast_lock::{Released, Settings};
use tokio::net::TcpSocket;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::open_files;
use crate::rate_limit::Limiter;
use crate::recorder::metrics_handle;
use crate::redis_connection::{self, RedisTlsArgs};
use crate::settings::{ServeArgs, Switch, WebSettings, parse_settings, race_hosts};
use crate::web::border::Border;
use crate::web::demo_user::DemoUser;
use crate::web::last_catalog::LastCatalog;
use crate::web::middleware::connections::ConnectionLimit;
use crate::web::middleware::rate_limits::RateLimits;
use crate::web::middleware::sessions::SessionCache;
pub use crate::web::pages::judgement::saved_check as check_page;
pub use crate::web::pages::judgement::saved_page as judgement_page;
pub use crate::web::pages::judgement::saved_service_page as service_page;
use crate::web::readiness::Readiness;
use crate::web::run_frames::RunFrames;
use crate::web::{AppState, MAX_EVENT_STREAMS, server};
use holdfast_lab::race::runner::RaceRunner;
use holdfast_lab::scheduler_game::{Games, MAX_TRANSACTIONS, MAX_TRANSACTIONS_OF_CLASS};
use holdfast_services::LabMode;
use holdfast_shop::budget::Budget;
use holdfast_shop::context::lab_connections;
use holdfast_shop::db;
use holdfast_shop::engine::delegation;
use holdfast_shop::jobs::{self, order_expiry::OrderExpiry};
use holdfast_shop::lock_family::{self, Candidate, Registration};
use holdfast_shop::locks::ShopLocks;
use holdfast_shop::probe::PauseBoard;
use holdfast_shop::{REQUEST_TIMEOUT, Shop, Strategy, seed};

/// Shutdown: time in which the requests in flight end and their responses are sent.
const FINISH_TIMEOUT: Duration = REQUEST_TIMEOUT.saturating_add(Duration::from_secs(2));
/// Shutdown: time for the transactions of requests whose clients have disconnected.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Shutdown: time to release what is held; a lease ends about as soon.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that may wait to be accepted: a client whose SYN is dropped waits a second or more.
const BACKLOG: u32 = 4_096;
/// Interval at which buffered metric samples are merged and the components are checked, for when
/// nothing asks: several within the interval of a scrape.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct ReplicaServer {
    listener: TcpListener,
    connections: ConnectionLimit,
    state: web::Data<AppState>,
    registration: Registration,
    drain: Duration,
}

impl ReplicaServer {
    /// Binds the address, and checks that Postgres and Redis are reachable and safe to use.
    pub async fn build(options: &ServeArgs) -> anyhow::Result<Self> {
        // First: what is recorded earlier is lost.
        let metrics = metrics_handle()?;
        let files = open_files::raise();
        if let Some(shortage) = open_files::describe_shortage(files, options.pool_size) {
            tracing::warn!("{shortage}");
        }

        let listener = listen(options.listen).with_context(|| {
            format!("can't listen on {}; choose another with --listen", options.listen)
        })?;
        let port = listener.local_addr()?.port();
        let replica = options.replica.clone().unwrap_or_else(|| port.to_string());

        let WebSettings { rates, proxies, max_connections, public_hosts, max_unpaid_orders } =
            parse_settings(options)?;
        let shop = Shop { max_unpaid_orders, ..shop(options, &replica)? };

        check_servers(options, &shop).await?;

        // Behind the checks, and before any work: two replicas whose locks do not exclude each
        // other would oversell.
        let candidate = Candidate::new(&options.database_url, &replica, &shop);
        let registration = Registration::new(candidate, options.lock.change_lock).await?;

        delegation::start(&shop, db::message_key(&shop.pool).await?);

        let board = PauseBoard::default();
        let max_transactions = match options.lab.is_class() {
            true => MAX_TRANSACTIONS_OF_CLASS,
            false => MAX_TRANSACTIONS,
        };
        let games = Games::new(&shop, &board, max_transactions);
        let hosts = race_hosts(options, listener.local_addr()?)?;
        let stop = CancellationToken::new();
        let races = RaceRunner::new(&shop, &replica, hosts, &stop);

        let order_expiry = OrderExpiry::default();
        let jobs_on = options.jobs == Switch::On;
        if jobs_on {
            order_expiry.start_worker(&shop, &replica, &board, &stop);
        }
        let jobs = jobs::Scheduler::new(&shop, &replica, &stop, jobs_on, jobs::JOBS);

        let limiter = Limiter::new(shop.locks.redis().clone(), &options.redis_prefix);
        let rate_limits = RateLimits::new(limiter, rates, proxies.clone());

        // Before anybody asks: an outage may begin with the first request.
        let last_catalog = LastCatalog::read(&shop).await;

        let state = AppState {
            shop,
            order_expiry,
            jobs,
            replica,
            rate_limits,
            public_hosts,
            readiness: Readiness::default(),
            lab: options.lab.is_on(),
            public_lab: options.lab == LabMode::Public,
            class: options.lab.is_class(),
            class_url: options.class_url.clone(),
            local_visitors: options.local_visitors == Switch::On,
            event_streams: Budget::new(MAX_EVENT_STREAMS, MAX_EVENT_STREAMS * 3 / 4),
            run_frames: RunFrames::default(),
            board,
            games,
            races,
            demo_user: DemoUser::default(),
            last_catalog,
            stop,
            sessions: SessionCache::default(),
            min_password_length: options.min_password_length,
            secure_cookies: options.secure_cookies == Switch::On,
            metrics,
        };

        let max_files = open_files::for_clients(files, options.pool_size);
        let connections = ConnectionLimit::new(max_files, max_connections, proxies);
        let drain = Duration::from_secs(options.drain_s);

        Ok(Self { listener, connections, state: web::Data::new(state), registration, drain })
    }

    /// Returns the address that it listens on, with the port that the system chose.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until SIGTERM or SIGINT, then shuts down: `/readyz` is 503 while requests are
    /// accepted for the drain time; then the listener closes, and what is in flight ends. A second
    /// signal cuts the requests in flight.
    pub async fn run_until_stopped(
        self,
        mut signals: UnboundedReceiver<&'static str>,
    ) -> anyhow::Result<()> {
        let Self { listener, connections, state, registration, drain } = self;

        state.shop.tasks.spawn(state.jobs.clone().run());
        let replica = state.clone();
        state.shop.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
            let upkeep = async {
                loop {
                    ticks.tick().await;
                    replica.metrics.run_upkeep();
                    replica.readiness.check(&replica.shop).await;
                }
            };
            let _ = replica.stop.run_until_cancelled(upkeep).await;
        });

        let (border, _open) = Border::open();
        let mut server =
            server::start(listener, connections, state.clone(), border, FINISH_TIMEOUT)?;

        // Not dropped before the end: a replica that drains still sells.
        let mut keeping = pin!(registration.keep());
        tokio::select! {
            ended = &mut server => return ended.context("the server ended"),
            refusal = &mut keeping => return Err(refusal.into()),
            Some(_) = signals.recv() => {}
        }

        tokio::select! {
            ended = shut_down(server, &state, drain) => ended,
            Some(_) = signals.recv() => bail!("second signal: requests in flight were aborted"),
        }
    }
}

/// Checks Postgres and Redis. Each failure names the setting to change; behind an open port it
/// would go unnoticed.
async fn check_servers(options: &ServeArgs, shop: &Shop) -> anyhow::Result<()> {
    db::check_database(&options.database_url, &shop.pool).await?;
    db::warn_of_plain_text(&shop.pool).await?;

    if let Some(lock) = shop.strategy.lock_in_redis() {
        redis_connection::check_locks(async || shop.locks.probe(lock).await).await?;
    }
    redis_connection::check_eviction_policy(shop.locks.redis()).await?;
    warn_of_demo_users(shop, options.listen).await
}

async fn shut_down(server: Server, state: &AppState, drain: Duration) -> anyhow::Result<()> {
    tracing::info!(
        "stopping: requests are accepted for {drain:?} more; another signal stops at once"
    );

    // Balancers see it before the listener closes, and send nothing more.
    state.readiness.begin_shutdown();
    let handle = server.handle();
    let stop = async {
        tokio::time::sleep(drain).await;
        state.stop.cancel();
        state.games.end_all();
        handle.stop(true).await;
    };
    let (ended, ()) = tokio::join!(server, stop);
    ended.context("the server ended")?;

    // The transaction of a closed connection may still run.
    if tokio::time::timeout(TRANSACTION_TIMEOUT, state.shop.tasks.wait()).await.is_err() {
        // Their locks are left to expire: what they protect may still be written.
        tracing::warn!("some transactions did not end in time");
        return Ok(());
    }

    // What a dropped guard releases in the background would keep others waiting for a lease.
    let closing = state.shop.locks.leases().close();
    match tokio::time::timeout(CLOSE_TIMEOUT, closing).await {
        Ok(Released::Held) => {}
        Ok(released) => tracing::warn!(?released, "some locks were not released"),
        Err(_) => tracing::warn!("some locks were not released in time"),
    }
    Ok(())
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted replica does not wait for the connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Time for which a lock is renewed: longer than any request (8 s) and its clean-up.
const MAX_LOCK_HOLD: Duration = Duration::from_secs(15);

fn shop(options: &ServeArgs, replica: &str) -> anyhow::Result<Shop> {
    let lock = &options.lock;
    let settings = Settings::default()
        .with_key_prefix(&options.redis_prefix)
        .with_name(replica)
        .with_ttl(Duration::from_millis(lock.lock_ttl_ms))
        .with_retry_interval(Duration::from_millis(lock.lock_retry_ms))
        .with_acquire_timeout(Duration::from_millis(lock.lock_timeout_ms))
        .with_max_hold(MAX_LOCK_HOLD)
        .with_observer(MetricsObserver);

    let mut nodes = Vec::new();
    for url in options.redlock_urls.iter().filter(|url| !url.is_empty()) {
        nodes.push(redis_connection::open(url, &options.redis_tls)?);
    }
    let redis = redis_connection::open(&options.redis_url, &options.redis_tls)?;
    redis_connection::warn_of_plain_text(nodes.iter().chain([&redis]));
    let locks = ShopLocks::new(redis, nodes, settings)?;

    let strategy = server_strategy(&lock.strategy)?;
    lock_family::check_hazard(strategy, lock.unsafe_lock == Switch::On)?;
    if strategy.lock.is_some_and(|kind| !locks.is_configured(kind)) {
        bail!("the lock {} needs several Redis servers; set REDLOCK_URLS", strategy.name);
    }

    let pool = db::pool(&options.database_url, options.pool_size)?;
    let payment_window = Duration::from_secs(options.pay_within_s);
    let mut shop = Shop::new(pool, locks, strategy, payment_window);
    if let Some(count) = options.lab_connections {
        shop.lab_connections = lab_connections(count);
    }
    Ok(shop)
}

/// Returns the number of threads of a replica's main runtime, beside one HTTP worker per core.
pub fn main_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

/// [`strategy`], of a whole server: not one that sells only items of the lab.
pub fn server_strategy(name: &str) -> anyhow::Result<&'static Strategy> {
    let strategy = strategy(name)?;
    if strategy.has_own_items() {
        bail!(
            "the lock {name} sells only items in units, which the lab makes: name it in the header \
             Holdfast-Lock of a request"
        );
    }
    if strategy.is_for_lab_only() {
        let hazard = strategy.hazard().unwrap_or_default();
        bail!(
            "the strategy {name} is for lab items only: {hazard}. Name it in the header \
             Holdfast-Lock of an order for a lab item"
        );
    }
    Ok(strategy)
}

pub fn strategy(name: &str) -> anyhow::Result<&'static Strategy> {
    Strategy::named(name)
        .with_context(|| format!("there is no lock “{name}”; the locks are {}", Strategy::names()))
}

pub fn locks(redis_url: &str, certificates: &RedisTlsArgs) -> anyhow::Result<ShopLocks> {
    let redis = redis_connection::open(redis_url, certificates)?;
    Ok(ShopLocks::new(redis, Vec::new(), Settings::default())?)
}

async fn warn_of_demo_users(shop: &Shop, listen: SocketAddr) -> anyhow::Result<()> {
    if listen.ip().is_loopback() {
        return Ok(());
    }

    let users = seed::find_demo_users(&shop.pool).await?;
    if !users.is_empty() {
        let names = users.join(", ");
        tracing::warn!(
            "{listen} can be reached from other machines, and the passwords of these users are \
             their names: {names}. Use `holdfast user passwd` or `holdfast user disable`"
        );
    }
    Ok(())
}
