//! `holdfast up`, from the first check to the last child: checks without side effects come before
//! anything starts; Postgres and Redis answer before the database is prepared; the replicas are
//! ready before `up` announces itself. Shutdown is the reverse, also of a start that fails.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::{join_all, select_all};
use tokio::task::LocalSet;

use super::UpArgs;
use super::data_dir::{DataDir, RunningUp};
use super::orphans::{self, ChildRegistry};
use super::process::{ChildSpec, own_program};
use super::programs::Programs;
use super::services_dir::ServicesDir;
use super::supervisor::{ProcessHandle, SupervisedChild};
use super::{postgres, redis, replicas, sockets};
use holdfast_base::output::{self, print_progress};
use holdfast_base::signals;

#[derive(Debug, Clone)]
pub struct ProcessControl {
    pub replicas: Vec<ProcessHandle>,
    pub redis: ProcessHandle,
    pub nodes: Vec<ProcessHandle>,
}

/// Runs Postgres, Redis and the replicas until INT, TERM or HUP. Stops them all on an error.
///
/// `prepare` receives the URL of an existing, perhaps empty database, and creates the schema and
/// the seed for the replicas. `companion` runs while everything is up, and is dropped at the end.
/// Must be called from the main thread, with which the children end.
pub async fn up(
    options: &UpArgs,
    prepare: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
    companion: impl AsyncFnOnce(RunningUp, ProcessControl),
) -> anyhow::Result<()> {
    let children = LocalSet::new();
    children.run_until(Box::pin(run_until_stopped(options, prepare, companion))).await
}

async fn run_until_stopped(
    options: &UpArgs,
    prepare: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
    companion: impl AsyncFnOnce(RunningUp, ProcessControl),
) -> Result<()> {
    // First: a signal from here on stops what was started, in order.
    let mut signals = signals::listen()?;
    let is_published = options.in_container && replicas::has_own_network();
    ensure!(
        options.listen.ip().is_loopback()
            || options.demo_users_on_network
            || is_published
            || options.class,
        "{} can be reached from other machines, and the demo users' passwords are their names. \
         Listen on 127.0.0.1, teach a class with --class, or allow it with \
         --demo-users-on-network",
        options.listen
    );

    let addresses = replicas::addresses(options.listen, options.replicas)?;
    if ServicesDir::is_new(&options.data) {
        // Before the folder is made, which a start that is refused would leave behind.
        replicas::check_free(&addresses)?;
    }
    let data_dir = DataDir::open(&options.data, &replicas::base_url(addresses[0])).await?;
    let mut services_dir = ServicesDir::open(&data_dir.path, options.adopt)?;
    // The folder is locked, so what they belonged to has ended. They may have the replicas' ports.
    orphans::terminate_all(&data_dir.path, &mut services_dir).await?;
    let programs = Programs::find(&services_dir).await?;
    replicas::check_free(&addresses)?;

    let sockets = sockets::create(services_dir.account.as_ref())?;
    let running = RunningUp {
        database_url: postgres::url(&sockets, "holdfast"),
        redis_url: redis::url(&sockets, redis::MAIN),
        redlock_urls: (1..=options.redlock)
            .map(|n| redis::url(&sockets, &redis::node(n)))
            .collect(),
        replicas: addresses.iter().copied().map(replicas::base_url).collect(),
        lab: options.lab.is_on(),
    };

    let registry = Rc::new(ChildRegistry::new(&data_dir.path, &sockets)?);
    let services = 2 + usize::from(options.redlock);
    let mut stack = ChildStack { data_dir, registry, children: Vec::new(), services };
    let outcome = tokio::select! {
        outcome = async {
            stack.start_services(options, &programs, &services_dir, &sockets).await?;
            print_progress("preparing the database …");
            let prepared = prepare(&running.database_url).await;
            prepared.context("the database could not be prepared")?;
            stack.start_replicas(options, &addresses, &running).await?;
            stack.run(options, running, companion).await
        } => outcome,
        Some(name) = signals.recv() => {
            print_progress(&format!("{name}: stopping …"));
            Ok(())
        }
    };

    stack.stop().await;
    if outcome.is_ok() {
        let data = stack.data_dir.path.display();
        print_progress(&format!("stopped; the data stays in {data}"));
    }
    outcome
}

/// Prints the only line on stdout.
fn announce(options: &UpArgs, running: &RunningUp) {
    let is_open =
        options.demo_users_on_network || options.class || options.listen.ip().is_loopback();
    if options.in_container && !is_open {
        print_progress(
            "this shop answers to names of its own machine, such as localhost, and to those in \
             HOLDFAST_PUBLIC_HOSTS. The demo users' passwords are their names: keep other machines \
             out with -p 127.0.0.1:PORT:PORT",
        );
    }

    let count = running.replicas.len();
    let line = format!(
        "Holdfast is ready: {} ({count} replica{}, lock: {}, lab: {}). Ctrl-C stops it.",
        running.replicas[0],
        if count == 1 { "" } else { "s" },
        options.lock,
        options.lab.name(),
    );
    output::announce(&line);
}

struct ChildStack {
    data_dir: DataDir,
    registry: Rc<ChildRegistry>,
    /// Postgres, Redis, the nodes of the quorum, then the replicas.
    children: Vec<SupervisedChild>,
    /// Number of the first ones, when all run.
    services: usize,
}

impl ChildStack {
    async fn start_services(
        &mut self,
        options: &UpArgs,
        programs: &Programs,
        services_dir: &ServicesDir,
        sockets: &Path,
    ) -> Result<()> {
        if !postgres::has_cluster(services_dir) {
            let data = self.data_dir.path.display();
            print_progress(&format!("this is a new shop: its data is in {data}"));
        }
        let cluster = postgres::create_cluster(&programs.initdb, services_dir, &[]).await?;
        let spec = postgres::spec(&programs.postgres, &cluster, services_dir, sockets)?;
        self.start(spec, postgres::START_TIMEOUT, || postgres::check_ready(sockets)).await?;

        let nodes = (1..=options.redlock).map(redis::node);
        for role in std::iter::once(redis::MAIN.to_owned()).chain(nodes) {
            services_dir.create(&role)?;
            let spec = redis::spec(&programs.redis, services_dir, sockets, &role)?;
            let url = redis::url(sockets, &role);
            self.start(spec, redis::START_TIMEOUT, || redis::check_ready(&url)).await?;
        }

        postgres::create_database(sockets).await.context("cannot create the database")
    }

    async fn start_replicas(
        &mut self,
        options: &UpArgs,
        addresses: &[SocketAddr],
        running: &RunningUp,
    ) -> Result<()> {
        let program = own_program()?;
        for address in addresses {
            let spec = replicas::spec(&program, *address, options, running);
            self.start(spec, replicas::START_TIMEOUT, async || {
                replicas::check_ready(*address).await.map(drop)
            })
            .await?;
        }
        Ok(())
    }

    async fn start(
        &mut self,
        spec: ChildSpec,
        limit: Duration,
        ready: impl AsyncFn() -> Result<(), String>,
    ) -> Result<()> {
        print_progress(&format!("starting {} …", spec.name));
        let log = self.data_dir.log(&spec.role);
        let child = SupervisedChild::start(spec, log, Rc::clone(&self.registry))?;
        // Before it is ready, so that it is stopped even if that fails.
        self.children.push(child);
        self.children[self.children.len() - 1].wait_ready(limit, ready).await
    }

    /// Announces the shop, and runs until it is dropped, or a child fails.
    async fn run(
        &self,
        options: &UpArgs,
        running: RunningUp,
        companion: impl AsyncFnOnce(RunningUp, ProcessControl),
    ) -> Result<()> {
        // Before the line, whose reader may look for the addresses at once.
        self.data_dir.write_env(&running)?;
        announce(options, &running);

        let handles: Vec<ProcessHandle> =
            self.children.iter().map(|child| child.handle.clone()).collect();
        let control = ProcessControl {
            replicas: handles[self.services..].to_vec(),
            redis: handles[1].clone(),
            nodes: handles[2..self.services].to_vec(),
        };

        // Crashed children are restarted; this is for a child that exited just before that began.
        let failure = select_all(self.children.iter().map(|child| Box::pin(child.wait_failed())));
        let companion = companion(running, control);
        tokio::pin!(failure, companion);
        tokio::select! {
            (error, ..) = &mut failure => Err(error),
            () = companion => Err(failure.await.0),
        }
    }

    async fn stop(&self) {
        // First: a client must not find a shop that stops.
        self.data_dir.remove_env();
        let (services, replicas) = self.children.split_at(self.services.min(self.children.len()));
        // The replicas together, as each may take its grace period; the services in turn.
        join_all(replicas.iter().map(SupervisedChild::stop)).await;
        for service in services.iter().rev() {
            service.stop().await;
        }

        self.registry.clear();
    }
}
