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

use super::data_dir::{Folder, Home, RunningUp};
use super::error::{Error, Result, system};
use super::leftovers::{self, Notes};
use super::programs::Programs;
use super::replicas::{self, Shared};
use super::spawner::{Spawner, Spec};
use super::supervisor::{Hand, Supervised};
use super::{postgres, progress, redis, sockets};
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
pub struct Hands {
    /// In the order of their addresses.
    pub replicas: Vec<Hand>,
    /// The Redis that the shop locks with.
    pub redis: Hand,
    /// Nodes of the quorum.
    pub nodes: Vec<Hand>,
}

/// Runs Postgres, Redis and the replicas until INT, TERM or HUP. Stops them all on an error.
///
/// `prepare` receives the URL of an existing, perhaps empty database, and creates the schema and
/// the seed for the replicas. `beside` runs while everything is up, and is dropped at the end.
pub async fn up(
    options: UpOptions,
    prepare: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
    beside: impl AsyncFnOnce(RunningUp, Hands),
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let addresses = check(&options)?;
    let folder = Folder::open(&options.data, &replicas::base_url(addresses[0])).await?;
    let mut stack = Stack::new(&folder)?;
    let outcome = tokio::select! {
        outcome = run(&options, &addresses, &folder, &mut stack, prepare, beside) => outcome,
        name = signals.next() => {
            progress(&format!("{name}: stopping …"));
            Ok(())
        }
    };
    folder.remove_env();
    stack.stop(&mut signals).await;
    if outcome.is_ok() {
        progress(&format!("stopped; the data stays in {}", options.data.display()));
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
    folder: &Folder,
    stack: &mut Stack,
    prepare: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
    beside: impl AsyncFnOnce(RunningUp, Hands),
) -> Result<()> {
    let home = folder.home()?;
    let cluster = home.path.join("postgres");
    leftovers::end_all(folder.path(), &cluster).await?;
    let programs = Programs::find(&cluster)?;
    replicas::check_free(addresses)?;
    let sockets = stack.make_sockets(&home)?;
    start_services(options, &programs, folder, &home, &sockets, stack).await?;
    let running = RunningUp {
        database_url: postgres::url(&sockets, "holdfast"),
        redis_url: redis::url(&sockets, redis::MAIN),
        redlock_urls: nodes(options).map(|node| redis::url(&sockets, &node)).collect(),
        replicas: addresses.iter().copied().map(replicas::base_url).collect(),
        lab: options.lab,
    };
    progress("preparing the database …");
    prepare(&running.database_url).await.map_err(Error::Prepare)?;
    start_replicas(options, addresses, folder, &running, stack).await?;
    folder.write_env(&running)?;
    announce(options, &running);
    // Crashed children are restarted; this is for a child that exited just before that began.
    let watched = stack.children.iter().map(|child| Box::pin(child.given_up()));
    let fallen = futures_util::future::select_all(watched);
    let beside = beside(running, stack.hands());
    tokio::pin!(fallen, beside);
    tokio::select! {
        (error, ..) = &mut fallen => Err(error),
        () = beside => Err(fallen.await.0),
    }
}

/// Starts Postgres and Redis, and creates the database.
async fn start_services(
    options: &UpOptions,
    programs: &Programs,
    folder: &Folder,
    home: &Home,
    sockets: &std::path::Path,
    stack: &mut Stack,
) -> Result<()> {
    let cluster = postgres::make_cluster(&programs.initdb, home).await?;
    progress("starting Postgres …");
    let log = folder.log("postgres");
    let spec = postgres::spec(&programs.postgres, &cluster, home, sockets, log);
    stack.start(spec, postgres::START_LIMIT, async || postgres::answers(sockets).await).await?;
    for name in std::iter::once(redis::MAIN.to_owned()).chain(nodes(options)) {
        progress(&format!("starting {} …", if name == redis::MAIN { "Redis" } else { &name }));
        home.make(&name)?;
        let spec = redis::spec(&programs.redis, home, sockets, &name, folder.log(&name));
        let ready = async || redis::answers(sockets, &name).await;
        stack.start(spec, redis::START_LIMIT, ready).await?;
    }
    stack.services = stack.children.len();
    postgres::create_database(sockets).await
}

/// Starts the replicas one by one, each until it is ready.
async fn start_replicas(
    options: &UpOptions,
    addresses: &[SocketAddr],
    folder: &Folder,
    running: &RunningUp,
    stack: &mut Stack,
) -> Result<()> {
    let shared = Shared {
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
        progress(&format!("starting replica {} …", address.port()));
        let log = folder.log(&format!("replica-{}", address.port()));
        let spec = replicas::spec(*address, pool_sizes.next().copied(), &shared, log);
        let ready = async || replicas::answers(*address).await;
        stack.start(spec, replicas::START_LIMIT, ready).await?;
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
struct Stack {
    notes: Arc<Notes>,
    spawner: Spawner,
    children: Vec<Supervised>,
    /// Number of services among them; the others are replicas.
    services: usize,
    sockets: Option<PathBuf>,
    hurry: watch::Sender<bool>,
}

impl Stack {
    fn new(folder: &Folder) -> Result<Self> {
        let notes = Arc::new(Notes::new(folder.path()));
        Ok(Self {
            spawner: Spawner::new(Arc::clone(&notes))?,
            notes,
            children: Vec::new(),
            services: usize::MAX,
            sockets: None,
            hurry: watch::Sender::new(false),
        })
    }

    fn make_sockets(&mut self, home: &Home) -> Result<PathBuf> {
        let sockets = sockets::make(home.account.as_ref())?;
        self.sockets = Some(sockets.clone());
        self.notes.sockets(&sockets)?;
        Ok(sockets)
    }

    async fn start(
        &mut self,
        spec: Spec,
        limit: Duration,
        probe: impl AsyncFn() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let child = Supervised::start(&self.spawner, spec, &self.hurry.subscribe()).await?;
        // Pushed first, so that it is stopped even if the wait fails.
        self.children.push(child);
        match self.children.last() {
            Some(child) => child.ready(limit, probe).await,
            None => Ok(()),
        }
    }

    /// Returns the control of all children but Postgres.
    fn hands(&self) -> Hands {
        // The order of starting: Postgres, Redis, the nodes, the replicas.
        let (services, replicas) = self.children.split_at(self.services);
        let hands = |children: &[Supervised]| children.iter().map(Supervised::hand).collect();
        Hands { replicas: hands(replicas), redis: services[1].hand(), nodes: hands(&services[2..]) }
    }

    /// Stops all, the last started first; another signal cuts their grace periods short.
    async fn stop(mut self, signals: &mut Signals) {
        let stopping = stop_in_turn(&mut self.children, self.services);
        tokio::pin!(stopping);
        tokio::select! {
            () = &mut stopping => {}
            name = signals.next() => {
                progress(&format!("{name} again: ending everything at once"));
                self.hurry.send_replace(true);
                stopping.await;
            }
        }
        // Without sockets nothing was started, and the notes may still be those of the last `up`.
        if let Some(sockets) = &self.sockets {
            sockets::remove(sockets);
            self.notes.clear();
        }
    }
}

/// Stops the replicas together, as each may take its grace period, then the services in turn.
async fn stop_in_turn(children: &mut [Supervised], services: usize) {
    let (services, replicas) = children.split_at_mut(children.len().min(services));
    futures_util::future::join_all(replicas.iter_mut().map(Supervised::stop)).await;
    for service in services.iter_mut().rev() {
        service.stop().await;
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` under `nohup`: a handler would override it.
    hang_up: Option<Signal>,
}

impl Signals {
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
