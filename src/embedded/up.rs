//! `holdfast up`, from the first check to the last child.
//!
//! Guarantees the order: checks without side effects come before anything starts; Postgres and
//! Redis answer before the database is prepared; the replicas start after that, and are ready
//! before `up` announces itself. Shutdown is the reverse. A start that fails stops what it has
//! started. Does not migrate by itself: the caller's `prepare` does.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::data_dir::{DataDir, RunningUp, ServicesDir};
use super::error::{Error, Result, system};
use super::orphans::{self, ChildRegistry};
use super::programs::Programs;
use super::replicas::{self, ReplicaOptions};
use super::spawner::{ChildSpec, Spawner};
use super::supervisor::{ProcessHandle, SupervisedChild};
use super::{postgres, print_progress, redis, sockets};
use crate::output;

#[derive(Debug, Clone)]
pub struct UpOptions {
    /// Number of replicas, on the listen port and the ports after it.
    pub replicas: u16,
    /// Address of the first replica.
    pub listen: SocketAddr,
    /// Folder that keeps the data between runs.
    pub data: PathBuf,
    /// Number of independent Redis servers to start for a quorum.
    pub redlock: u16,
    /// Connections to Postgres, assigned to the replicas in turn; the default if empty.
    pub pool_sizes: Vec<u32>,
    pub lab: bool,
    /// Strategy of the replicas.
    pub lock: String,
    /// True if an address that is not loopback is intended.
    pub demo_users_on_network: bool,
    /// The program whose `serve` is a replica: the current executable.
    pub serve_program: PathBuf,
}

/// Control of the children that lessons pause and kill.
#[derive(Debug, Clone)]
pub struct ProcessControl {
    /// In the order of their addresses.
    pub replicas: Vec<ProcessHandle>,
    /// The Redis that the shop locks with.
    pub redis: ProcessHandle,
    /// Nodes of the quorum.
    pub nodes: Vec<ProcessHandle>,
}

/// Runs Postgres, Redis and the replicas until INT, TERM or HUP. Stops them all on an error.
///
/// `prepare` receives the URL of an existing, perhaps empty database, and creates the schema and
/// the seed for the replicas. `companion` runs while everything is up, and is dropped at the end.
pub async fn up(
    options: UpOptions,
    prepare: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
    companion: impl AsyncFnOnce(RunningUp, ProcessControl),
) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let addresses = check(&options)?;
    let data_dir = DataDir::open(&options.data, &replicas::base_url(addresses[0])).await?;
    let mut stack = ChildStack::new(&data_dir)?;
    let outcome = tokio::select! {
        outcome = run(&options, &addresses, &data_dir, &mut stack, prepare, companion) => outcome,
        name = signals.next() => {
            print_progress(&format!("{name}: stopping …"));
            Ok(())
        }
    };
    data_dir.remove_env();
    stack.stop(&mut signals).await;
    if outcome.is_ok() {
        print_progress(&format!("stopped; the data stays in {}", options.data.display()));
    }
    Ok(outcome?)
}

/// Checks what can be checked without side effects; returns the replicas' addresses.
fn check(options: &UpOptions) -> Result<Vec<SocketAddr>> {
    if !options.listen.ip().is_loopback() && !options.demo_users_on_network {
        return Err(Error::NotLoopback(options.listen));
    }
    replicas::addresses(options.listen, options.replicas.max(1))
}

/// Starts everything, then runs until it is dropped.
async fn run(
    options: &UpOptions,
    addresses: &[SocketAddr],
    data_dir: &DataDir,
    stack: &mut ChildStack,
    prepare: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
    companion: impl AsyncFnOnce(RunningUp, ProcessControl),
) -> Result<()> {
    let services_dir = data_dir.services_dir()?;
    let cluster = services_dir.path.join("postgres");
    orphans::terminate_all(data_dir.path(), &cluster).await?;
    let programs = Programs::find(&cluster)?;
    replicas::check_free(addresses)?;
    let sockets = stack.create_sockets(&services_dir)?;
    start_services(options, &programs, data_dir, &services_dir, &sockets, stack).await?;
    let running = RunningUp {
        database_url: postgres::url(&sockets, "holdfast"),
        redis_url: redis::url(&sockets, redis::MAIN),
        redlock_urls: nodes(options).map(|node| redis::url(&sockets, &node)).collect(),
        replicas: addresses.iter().copied().map(replicas::base_url).collect(),
        lab: options.lab,
    };
    print_progress("preparing the database …");
    prepare(&running.database_url).await.map_err(Error::Prepare)?;
    start_replicas(options, addresses, data_dir, &running, stack).await?;
    data_dir.write_env(&running)?;
    announce(options, &running);
    // Crashed children are restarted; this is for a child that exited just before that began.
    let failures = stack.children.iter().map(|child| Box::pin(child.wait_failed()));
    let failure = futures_util::future::select_all(failures);
    let companion = companion(running, stack.process_control());
    tokio::pin!(failure, companion);
    tokio::select! {
        (error, ..) = &mut failure => Err(error),
        () = companion => Err(failure.await.0),
    }
}

/// Starts Postgres and Redis, and creates the database.
async fn start_services(
    options: &UpOptions,
    programs: &Programs,
    data_dir: &DataDir,
    services_dir: &ServicesDir,
    sockets: &std::path::Path,
    stack: &mut ChildStack,
) -> Result<()> {
    let cluster = postgres::create_cluster(&programs.initdb, services_dir).await?;
    print_progress("starting Postgres …");
    let log = data_dir.log("postgres");
    let spec = postgres::spec(&programs.postgres, &cluster, services_dir, sockets, log);
    stack
        .start(spec, postgres::START_TIMEOUT, async || postgres::check_ready(sockets).await)
        .await?;
    for name in std::iter::once(redis::MAIN.to_owned()).chain(nodes(options)) {
        print_progress(&format!(
            "starting {} …",
            if name == redis::MAIN { "Redis" } else { &name }
        ));
        services_dir.create(&name)?;
        let spec = redis::spec(&programs.redis, services_dir, sockets, &name, data_dir.log(&name));
        let ready = async || redis::check_ready(sockets, &name).await;
        stack.start(spec, redis::START_TIMEOUT, ready).await?;
    }
    stack.services = stack.children.len();
    postgres::create_database(sockets).await
}

/// Starts the replicas one by one, each until it is ready.
async fn start_replicas(
    options: &UpOptions,
    addresses: &[SocketAddr],
    data_dir: &DataDir,
    running: &RunningUp,
    stack: &mut ChildStack,
) -> Result<()> {
    let replica_options = ReplicaOptions {
        program: &options.serve_program,
        database_url: &running.database_url,
        redis_url: &running.redis_url,
        redlock_urls: &running.redlock_urls.join(","),
        lock: &options.lock,
        lab: options.lab,
    };
    // Always `None`, or one size after the other.
    let mut pool_sizes = options.pool_sizes.iter().cycle();
    for address in addresses {
        print_progress(&format!("starting replica {} …", address.port()));
        let log = data_dir.log(&format!("replica-{}", address.port()));
        let spec = replicas::spec(*address, pool_sizes.next().copied(), &replica_options, log);
        let ready = async || replicas::check_ready(*address).await;
        stack.start(spec, replicas::START_TIMEOUT, ready).await?;
    }
    Ok(())
}

fn nodes(options: &UpOptions) -> impl Iterator<Item = String> {
    (1..=options.redlock).map(redis::node)
}

/// Prints the only line on stdout.
fn announce(options: &UpOptions, running: &RunningUp) {
    let count = running.replicas.len();
    let line = format!(
        "Holdfast is ready: {} ({count} replica{}, lock: {}, lab: {}). Ctrl-C stops it.\n",
        running.replicas[0],
        if count == 1 { "" } else { "s" },
        options.lock,
        if options.lab { "on" } else { "off" },
    );
    // A closed stdout is no reason to stop.
    let _ = output::print(&line);
}

/// The started children, in order.
struct ChildStack {
    registry: Arc<ChildRegistry>,
    spawner: Spawner,
    children: Vec<SupervisedChild>,
    /// Number of services among them; the others are replicas.
    services: usize,
    sockets: Option<PathBuf>,
    is_urgent: watch::Sender<bool>,
}

impl ChildStack {
    fn new(data_dir: &DataDir) -> Result<Self> {
        let registry = Arc::new(ChildRegistry::new(data_dir.path()));
        Ok(Self {
            spawner: Spawner::new(Arc::clone(&registry))?,
            registry,
            children: Vec::new(),
            services: usize::MAX,
            sockets: None,
            is_urgent: watch::Sender::new(false),
        })
    }

    fn create_sockets(&mut self, services_dir: &ServicesDir) -> Result<PathBuf> {
        let sockets = sockets::create(services_dir.account.as_ref())?;
        self.sockets = Some(sockets.clone());
        self.registry.record_sockets(&sockets)?;
        Ok(sockets)
    }

    async fn start(
        &mut self,
        spec: ChildSpec,
        timeout: Duration,
        probe: impl AsyncFn() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let child =
            SupervisedChild::start(&self.spawner, spec, &self.is_urgent.subscribe()).await?;
        // Pushed first, so that it is stopped even if the wait fails.
        self.children.push(child);
        match self.children.last() {
            Some(child) => child.wait_ready(timeout, probe).await,
            None => Ok(()),
        }
    }

    /// Returns the control of all children but Postgres.
    fn process_control(&self) -> ProcessControl {
        // The order of starting: Postgres, Redis, the nodes, the replicas.
        let (services, replicas) = self.children.split_at(self.services);
        let handles =
            |children: &[SupervisedChild]| children.iter().map(SupervisedChild::handle).collect();
        ProcessControl {
            replicas: handles(replicas),
            redis: services[1].handle(),
            nodes: handles(&services[2..]),
        }
    }

    /// Stops all, the last started first; another signal cuts their grace periods short.
    async fn stop(mut self, signals: &mut StopSignals) {
        let stopping = stop_in_turn(&mut self.children, self.services);
        tokio::pin!(stopping);
        tokio::select! {
            () = &mut stopping => {}
            name = signals.next() => {
                print_progress(&format!("{name} again: ending everything at once"));
                self.is_urgent.send_replace(true);
                stopping.await;
            }
        }
        // Without sockets nothing was started, and `pids` may still be that of the last `up`.
        if let Some(sockets) = &self.sockets {
            sockets::remove(sockets);
            self.registry.clear();
        }
    }
}

/// Stops the replicas together, as each may take its grace period, then the services in turn.
async fn stop_in_turn(children: &mut [SupervisedChild], services: usize) {
    let (services, replicas) = children.split_at_mut(children.len().min(services));
    futures_util::future::join_all(replicas.iter_mut().map(SupervisedChild::stop)).await;
    for service in services.iter_mut().rev() {
        service.stop().await;
    }
}

struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` under `nohup`: a handler would override it.
    hang_up: Option<Signal>,
}

impl StopSignals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(system("cannot listen to signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: if ignores_hang_up() { None } else { Some(listen(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
            true = received(&mut self.hang_up) => "hung up",
        }
    }
}

/// Waits for a signal; returns false at once without a handler.
async fn received(signal: &mut Option<Signal>) -> bool {
    match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => false,
    }
}

/// Returns whether HUP is ignored, which is known on Linux only.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}
