//! The composition root: puts one replica together and runs it until it is told to stop.

use std::net::{SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::{App, HttpServer, web};
use anyhow::{Context, bail};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpSocket;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{LimitSettings, Serve, Switch};
use crate::db;
use crate::jobs::{self, unpaid::Unpaid};
use crate::lab::scheduler::Games;
use crate::limits::{Limiter, Rate};
use crate::lock::{Locks, Redis, Settings};
use crate::probe::Board;
use crate::shop::engine::Engine;
use crate::shop::expiry::ExpiryNotifier;
use crate::shop::{Shop, Strategy};
use crate::web::address::Proxies;
use crate::web::admission::{Door, Rates, admission};
use crate::web::envelope::envelope;
use crate::web::pages::dress::dress;
use crate::web::{Site, configure};

/// Requests in flight get this long after a SIGTERM; then the process ends.
const DRAIN_S: u64 = 3;
/// So many connections wait to be accepted. Where no more may, the kernel lets the next one's
/// packet fall, and its client sends it again after a second, and after three: so a refusal at once
/// begins here. The 128 that are usual are few for a crowd; the kernel's own limit
/// (`net.core.somaxconn`) is 4,096 too.
const BACKLOG: u32 = 4_096;
/// How often samples that nobody has asked for are put together.
const UPKEEP: Duration = Duration::from_secs(5);
/// Upper bounds of the histograms' buckets, in seconds.
const BUCKETS_S: [f64; 14] =
    [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// The same for how many there are.
const BUCKETS_N: [f64; 11] = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// One replica, bound to its address and not yet serving.
#[derive(Debug)]
pub struct Replica {
    listener: TcpListener,
    site: web::Data<Site>,
}

impl Replica {
    /// Binds the address and checks that Postgres and Redis are there and safe to use.
    pub async fn build(options: &Serve) -> anyhow::Result<Self> {
        raise_open_files();
        let listener = listen(options.listen).with_context(|| {
            format!("can't listen on {}; choose another with --listen", options.listen)
        })?;
        let port = listener.local_addr()?.port();
        let replica = options.replica.clone().unwrap_or_else(|| port.to_string());
        let (expiry, placed) = ExpiryNotifier::new();
        let (rates, proxies) = checked(options)?;
        let shop = shop(options, &replica, expiry)?;
        db::reach(&options.database_url).await?;
        db::check_server(&shop.pool).await?;
        refuse_eviction(shop.locks.redis()).await?;
        let board = Board::default();
        let games = Games::new(&shop, &board);
        let stop = CancellationToken::new();
        let unpaid = Unpaid::of(&shop);
        unpaid.listen(&shop, placed, &stop);
        let jobs_on = options.jobs == Switch::On;
        if jobs_on {
            unpaid.work(&shop, &replica, &board, &stop);
        }
        let jobs = jobs::Scheduler::new(&shop, &replica, &stop, jobs_on, &jobs::JOBS)?;
        let limiter = Limiter::new(shop.locks.redis().clone(), &options.redis_prefix);
        let door = Door::new(limiter, rates, proxies);
        let site = Site {
            shop,
            unpaid,
            jobs,
            replica,
            door,
            readiness: crate::web::api::health::Readiness::default(),
            lab: options.lab == Switch::On,
            board,
            games,
            stop,
            sessions: crate::web::auth::Sessions::default(),
            metrics: metrics_handle()?,
        };
        Ok(Self { listener, site: web::Data::new(site) })
    }

    pub fn port(&self) -> std::io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves until SIGTERM or SIGINT, then lets requests in flight finish.
    pub async fn run_until_stopped(self) -> anyhow::Result<()> {
        let site = self.site;
        let running = site.shop.running.clone();
        let metrics = site.metrics.clone();
        let ending = site.clone();
        running.spawn(site.jobs.clone().run());
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(UPKEEP);
            loop {
                ticks.tick().await;
                metrics.run_upkeep();
            }
        });
        let server = HttpServer::new(move || {
            App::new()
                .app_data(site.clone())
                .wrap(from_fn(admission))
                .wrap(from_fn(envelope))
                .wrap(from_fn(dress))
                .configure(configure)
        })
        // A client that closes its connection has gone, and what it waited for is not done. It
        // can't be told from one that closed only its writing half and still listens, so nobody may
        // do that while they wait; few do.
        .h1_allow_half_closed(false)
        .shutdown_timeout(DRAIN_S)
        .disable_signals()
        .listen(self.listener)?
        .run();
        let handle = server.handle();
        tokio::spawn(async move {
            stop_signal().await;
            tracing::info!("stopping");
            ending.stop.cancel();
            ending.games.end_all();
            handle.stop(true).await;
        });
        server.await.context("the server ended")?;
        // A client that hung up is no connection any more, but its transaction may still run.
        running.close();
        if tokio::time::timeout(Duration::from_secs(DRAIN_S), running.wait()).await.is_err() {
            tracing::warn!("some transactions did not end in time");
        }
        Ok(())
    }
}

/// As many files as this process may have open: every client is one, and the 1,024 that are usual
/// are fewer than wait for two items. (They are usual for `select`, which nobody here uses.)
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "no more than {:?} files can be open at once", limit.current);
    }
}

/// Binds the address, with room for a crowd. Must be called on a runtime.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A replica that comes back does not wait for the connections of the one before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// The shop of those options, for the replica of that name. Must be called on the main runtime.
fn shop(options: &Serve, replica: &str, expiry: ExpiryNotifier) -> anyhow::Result<Shop> {
    let lock = &options.lock;
    let settings = Settings {
        prefix: options.redis_prefix.clone(),
        name: Some(replica.to_owned()),
        ttl: Duration::from_millis(lock.lock_ttl_ms),
        retry: Duration::from_millis(lock.lock_retry_ms),
        timeout: Duration::from_millis(lock.lock_timeout_ms),
        ..Settings::default()
    };
    let nodes = options.redlock_urls.iter().filter(|url| !url.is_empty());
    let nodes: Vec<Redis> = nodes.map(|url| redis(url)).collect::<Result<_, _>>()?;
    let locks = Locks::new(redis(&options.redis_url)?, settings).with_quorum(nodes);
    let strategy = strategy(&lock.strategy)?;
    if strategy.lock.is_some_and(|kind| !locks.has(kind)) {
        bail!("the lock {} needs several Redis; name them in REDLOCK_URLS", strategy.name);
    }
    Ok(Shop {
        pool: db::pool(&options.database_url, options.pool_size)?,
        locks,
        strategy,
        runtime: Handle::current(),
        running: TaskTracker::new(),
        engine: Engine::default(),
        hold: Duration::from_secs(options.pay_within_s),
        expiry,
    })
}

/// What is allowed where nothing is set and the lab is off. Generous: a person with ten pages open
/// and a script of theirs, a whole office behind one address; and what a password may be guessed
/// at: ten times a minute for each name, which is 14,400 a day.
const USUAL_RATES: [&str; 4] = ["50/s:200", "500/s:2000", "60/m:30", "10/m:10"];

#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}")]
pub struct Unusable {
    pub flag: &'static str,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// Checks the limits, the proxies and the prefix as written; returns the first that can't be used.
pub fn check(options: &Serve) -> Result<(), Unusable> {
    checked(options).map(|_| ())
}

/// The limits of those options, and whose word is taken for who asks. The one place that says what
/// holds where nothing was set.
fn checked(options: &Serve) -> Result<(Rates, Proxies), Unusable> {
    if options.redis_prefix.trim().is_empty() {
        let why = "it must not be blank: whose keys are whose could not be told".to_owned();
        return Err(Unusable { flag: "--redis-prefix", why });
    }
    let LimitSettings {
        limit_client,
        limit_address,
        limit_sign_in,
        limit_sign_in_name,
        trusted_proxies,
    } = &options.limits;
    let [client, address, sign_in, name] = USUAL_RATES;
    let rate = |flag, set: &Option<String>, usual: &'static str| {
        let unset = if options.lab == Switch::On { "off" } else { usual };
        Ok(match set.as_deref().filter(|set| !set.is_empty()).unwrap_or(unset) {
            "off" => None,
            text => Some(text.parse::<Rate>().map_err(|why| Unusable { flag, why })?),
        })
    };
    let rates = Rates {
        client: rate("--limit-client", limit_client, client)?,
        address: rate("--limit-address", limit_address, address)?,
        sign_in: rate("--limit-sign-in", limit_sign_in, sign_in)?,
        name: rate("--limit-sign-in-name", limit_sign_in_name, name)?,
    };
    let unusable = |why| Unusable { flag: "--trusted-proxies", why };
    Ok((rates, Proxies::read(trusted_proxies).map_err(unusable)?))
}

/// How many threads a replica's main runtime has, beside one HTTP worker per core: half the cores.
/// What runs there are short steps between two round trips, and each that is handed from one thread
/// to another waits until that one is awake.
pub fn main_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

pub fn strategy(name: &str) -> anyhow::Result<&'static Strategy> {
    Strategy::named(name)
        .with_context(|| format!("there is no lock “{name}”; there are {}", Strategy::names()))
}

/// The locks of that Redis, to look at. Must be called on the main runtime.
pub fn locks(redis_url: &str) -> anyhow::Result<Locks> {
    Ok(Locks::new(redis(redis_url)?, Settings::default()))
}

fn redis(url: &str) -> anyhow::Result<Redis> {
    Redis::open(url).context("the address of Redis (REDIS_URL, REDLOCK_URLS) can't be read")
}

/// A Redis that evicts keys when it is full gives locks away.
async fn refuse_eviction(redis: &Redis) -> anyhow::Result<()> {
    let policy = redis
        .eviction_policy()
        .await
        .context("Redis does not answer. Is it running, and is REDIS_URL right?")?;
    match policy.as_deref() {
        None => tracing::warn!("Redis does not tell its maxmemory-policy; it must be noeviction"),
        Some("noeviction") => {}
        Some(policy) => bail!(
            "Redis runs with maxmemory-policy {policy}: when it is full it removes locks that are \
             held. Set it to noeviction"
        ),
    }
    Ok(())
}

/// The process has one recorder, however many replicas a test puts together.
fn metrics_handle() -> anyhow::Result<PrometheusHandle> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS_S)?
        .set_buckets_for_metric(Matcher::Suffix("_requests".to_owned()), &BUCKETS_N)?
        .install_recorder()?;
    describe_metrics();
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// What each figure means: the `HELP` at `/metrics`, and the only list of them.
fn describe_metrics() {
    for (name, help) in [
        ("holdfast_http_request_seconds", "From a request's arrival to its answer"),
        ("holdfast_lock_wait_seconds", "From asking for locks to getting them, or to a no"),
        ("holdfast_job_seconds", "One attempt at a scheduled job, by job"),
        ("holdfast_lock_hold_seconds", "From getting locks to having given them back"),
        ("holdfast_batch_requests", "batched: how many requests were carried out together"),
        ("holdfast_group_requests", "batched: how many requests of several items shared a write"),
        ("holdfast_lock_line_requests", "fenced: how many of this process were in line before"),
        ("holdfast_unpaid_late_seconds", "How long an unpaid order was due when it was dealt with"),
    ] {
        metrics::describe_histogram!(name, help);
    }
    for (name, help) in [
        ("holdfast_lock_waiting_requests", "Requests of this process that wait for locks now"),
        (
            "holdfast_lock_contended_keys",
            "fenced: keys this process holds while another is known to wait for them",
        ),
        ("holdfast_limits_alone", "1 while Redis is away and this replica keeps limits alone"),
    ] {
        metrics::describe_gauge!(name, help);
    }
    for (name, help) in [
        (
            "holdfast_lock_handoffs_total",
            "fenced: how it was had: free, from here (local), told (remote) or found out (polled)",
        ),
        (
            "holdfast_job_runs_total",
            "Attempts at scheduled jobs by outcome: done, failed (tried again), parked, late, stopped",
        ),
        ("holdfast_lock_renewals_total", "fenced: leases that were given their full time again"),
        ("holdfast_lock_lost_total", "fenced: leases that were gone while somebody held them"),
        ("holdfast_limit_refusals_total", "Requests refused because one client asks too much"),
        ("holdfast_limit_calls_total", "Calls to Redis for permits, each for all who asked"),
        (
            "holdfast_line_full_total",
            "batched: requests that found more in line than can be served",
        ),
        ("holdfast_stale_writes_total", "Writes refused because another holder had been at it"),
        ("holdfast_unpaid_given_back_total", "Orders that were not paid in time and given back"),
        ("holdfast_unpaid_failures_total", "Unpaid orders that could not be given back, each time"),
        (
            "holdfast_unpaid_untold_total",
            "Orders that the queue of unpaid ones was not told of; Postgres knows them",
        ),
    ] {
        metrics::describe_counter!(name, help);
    }
}

async fn stop_signal() {
    let (Ok(mut term), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals can't be listened to");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
