//! `holdfast up`, from the first check to the last child.
//!
//! Guarantees the order: everything that can be refused is refused before anything starts; Postgres
//! and Redis answer before the database is prepared, that before the replicas start, they before
//! anybody is told; and the way down is the way up, backwards. A start that fails stops what it had
//! started. It does not migrate by itself: what the database needs is the caller's `prepare`.

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
    /// How many replicas, on the listen port and the ones after it.
    pub replicas: u16,
    /// Address of the first replica.
    pub listen: SocketAddr,
    /// Folder that keeps the data between runs.
    pub data: PathBuf,
    /// How many independent Redis to start for a quorum.
    pub redlock: u16,
    /// Connections to Postgres, for the replicas in turn; none said, the usual number.
    pub pool_sizes: Vec<u32>,
    pub lab: bool,
    /// The replicas' strategy.
    pub lock: String,
    /// Whether an address that is not loopback is meant.
    pub demo_users_on_network: bool,
    /// The program whose `serve` is a replica: ourselves.
    pub serve_program: PathBuf,
}

/// The children whose failing is a lesson.
#[derive(Debug, Clone)]
pub struct Hands {
    /// In the order of their addresses.
    pub replicas: Vec<Hand>,
    /// The one that the shop locks with.
    pub redis: Hand,
    /// The quorum's.
    pub nodes: Vec<Hand>,
}

/// Runs Postgres, Redis and the replicas until INT, TERM or HUP. On an error it stops them all.
///
/// `prepare` gets the address of a database that exists and may be empty, and makes it fit for the
/// replicas: schema and seed. `beside` is run while everything is up, and dropped when it ends.
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

/// What can be refused without touching anything.
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
    // Crashes are mended; this is for a child that fell in the instant before that began.
    let watched = stack.children.iter().map(|child| Box::pin(child.given_up()));
    let fallen = futures_util::future::select_all(watched);
    let beside = beside(running, stack.hands());
    tokio::pin!(fallen, beside);
    tokio::select! {
        (error, ..) = &mut fallen => Err(error),
        () = beside => Err(fallen.await.0),
    }
}

/// Postgres and Redis, ready, with a database.
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

/// The replicas, all at once, then each ready.
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
    // None forever, or one size after the other.
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

/// The one line on stdout.
fn announce(options: &UpOptions, running: &RunningUp) {
    let count = running.replicas.len();
    let line = format!(
        "Holdfast is ready: {} ({count} replica{}, lock: {}, lab: {}). Ctrl-C stops it.\n",
        running.replicas[0],
        if count == 1 { "" } else { "s" },
        options.lock,
        if options.lab { "on" } else { "off" },
    );
    // It runs, told or not.
    let _ = output::print(&line);
}

/// What has been started, in that order.
struct Stack {
    notes: Arc<Notes>,
    spawner: Spawner,
    children: Vec<Supervised>,
    /// How many of them are services; the others are replicas.
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
        // Into the stack first: whatever happens while we wait, it will be stopped.
        self.children.push(child);
        match self.children.last() {
            Some(child) => child.ready(limit, probe).await,
            None => Ok(()),
        }
    }

    /// Everybody who was started, but Postgres.
    fn hands(&self) -> Hands {
        // Postgres, Redis, the nodes, the replicas: the order in which they are started.
        let (services, replicas) = self.children.split_at(self.services);
        let hands = |children: &[Supervised]| children.iter().map(Supervised::hand).collect();
        Hands { replicas: hands(replicas), redis: services[1].hand(), nodes: hands(&services[2..]) }
    }

    /// Stops all, the last started first; a signal meanwhile ends it at once.
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
        // Without sockets nothing was started, and the notes may still be the last `up`'s.
        if let Some(sockets) = &self.sockets {
            sockets::remove(sockets);
            self.notes.clear();
        }
    }
}

/// Replicas together, since each may need its patience; then the services one by one.
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
    /// None under `nohup`: listening would undo what the user asked for.
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

/// Waits for a signal; false at once when it is not listened to.
async fn received(signal: &mut Option<Signal>) -> bool {
    match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => false,
    }
}

/// Whether we were started with HUP ignored (Linux tells; elsewhere it is not).
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}
