//! Stage of one pass: servers, proxies and workers, started afresh for each fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_lock::clock::monotonic_us;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::plan::JudgePlan;
use super::protocol::{WorkerOrder, WorkerReport, WorkerSetup};
use super::proxy::Proxy;
use super::recording::{Mark, RecordedTurn, Recording};
use super::report::{Adapter, ClientId};
use super::servers::RedisServers;
use super::worker_process::{WorkerMessage, WorkerProcess};
use crate::embedded::TempPostgres;

/// Time for a worker to start, without the adapter's answer to `init`.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the last turns to end, without the waits of the adapter.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Distance of the turns' numbers of two processes, which are unique in a pass.
const TURNS_OF_A_PROCESS: u32 = 10_000_000;

/// A client that is held between its read and its write.
pub(super) type Holder = RecordedTurn;

/// Settings of a stage that depend on the fault.
#[derive(Debug, Clone, Default)]
pub(super) struct StageOptions {
    pub(super) pass: i64,
    pub(super) with_replica: bool,
    /// Adapters reach Redis without a proxy, which would add to their waits.
    pub(super) direct: bool,
    /// Environment of the adapters, besides the user's.
    pub(super) env: BTreeMap<String, String>,
    pub(super) wait_ms: u64,
}

#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) plan: &'a JudgePlan,
    options: StageOptions,
    postgres: &'a TempPostgres,
    /// Postgres listens on its socket only; not every client library can connect to that.
    postgres_proxy: Proxy,
    pub(super) redis: RedisServers,
    redis_proxies: Vec<Proxy>,
    workers: Vec<WorkerProcess>,
    sender: mpsc::UnboundedSender<WorkerMessage>,
    messages: mpsc::UnboundedReceiver<WorkerMessage>,
    /// Number of processes that were started.
    processes: u32,
    /// Those whose adapters have answered `init`.
    ready: BTreeSet<u32>,
    pub(super) recording: Recording,
    pub(super) adapter: Option<Adapter>,
}

impl<'a> Stage<'a> {
    /// Starts servers, proxies and workers, and waits until all adapters have answered `init`.
    pub(super) async fn set_up(
        plan: &'a JudgePlan,
        options: StageOptions,
        postgres: &'a TempPostgres,
    ) -> anyhow::Result<Self> {
        let redis = RedisServers::start(options.with_replica).await?;
        let mut redis_proxies = Vec::new();
        for _ in 0..plan.workers {
            redis_proxies.push(Proxy::start(&redis.socket()).await?);
        }
        let (sender, messages) = mpsc::unbounded_channel();
        let mut stage = Self {
            plan,
            options,
            postgres,
            postgres_proxy: Proxy::start(&postgres.socket()).await?,
            redis,
            redis_proxies,
            workers: Vec::new(),
            sender,
            messages,
            processes: 0,
            ready: BTreeSet::new(),
            recording: Recording::default(),
            adapter: None,
        };
        for worker in 0..plan.workers {
            let process = stage.start_worker(worker).await?;
            stage.workers.push(process);
        }
        for process in 1..=stage.processes {
            stage.wait_ready(process).await?;
        }
        Ok(stage)
    }

    async fn start_worker(&mut self, worker: u32) -> anyhow::Result<WorkerProcess> {
        let plan = self.plan;
        let proxied = self.redis_proxies[worker as usize].port;
        let redis = if self.options.direct { self.redis.port() } else { proxied };
        let mut env = plan.env.clone();
        env.extend(self.options.env.clone());
        let setup = WorkerSetup {
            worker,
            clients: plan.clients,
            command: plan.command.clone(),
            env,
            redis_url: format!("redis://:{}@127.0.0.1:{redis}/0", self.redis.password()),
            database_url: format!(
                "postgres://holdfast:{}@127.0.0.1:{}/holdfast?sslmode=disable",
                self.postgres.password, self.postgres_proxy.port
            ),
            ledger_url: self.postgres.url(),
            key: plan.key(self.options.pass),
            ttl_ms: plan.ttl_ms,
            wait_ms: self.options.wait_ms,
            work_ms: plan.work_ms,
            think_ms: plan.think_ms,
            // A stopped worker can't read the answer.
            answer_timeout_ms: plan.answer_timeout_ms + 3 * plan.ttl_ms,
            seed: plan.seed,
            pass: self.options.pass,
            first_turn: self.processes * TURNS_OF_A_PROCESS,
        };
        self.processes += 1;
        WorkerProcess::start(&setup, self.processes, self.sender.clone()).await
    }

    async fn wait_ready(&mut self, process: u32) -> anyhow::Result<()> {
        let answer = Duration::from_millis(self.plan.answer_timeout_ms + 3 * self.plan.ttl_ms);
        let until = Instant::now() + START_TIMEOUT + answer;
        while !self.ready.contains(&process) {
            self.next(until).await?.context("a worker is not ready in time")?;
        }
        Ok(())
    }

    /// Receives the next message; turns are recorded. `None` if there is none in time. Fails if a
    /// worker has failed or ended.
    async fn next(&mut self, until: Instant) -> anyhow::Result<Option<WorkerMessage>> {
        let Ok(message) = timeout_at(until, self.messages.recv()).await else { return Ok(None) };
        let message = message.context("the workers have ended")?;
        let id = |client| ClientId { worker: message.worker, client };
        match &message.report {
            Some(WorkerReport::Turn(turn)) => {
                self.recording.turns.push(RecordedTurn { id: id(turn.client), turn: *turn });
            }
            Some(WorkerReport::Ready(adapter)) => {
                self.ready.insert(message.process);
                self.adapter.get_or_insert_with(|| adapter.clone());
            }
            Some(WorkerReport::Failed { why }) if self.is_current(&message) => {
                bail!("worker {}: {why}", message.worker)
            }
            None if self.is_current(&message) => bail!("worker {} has ended", message.worker),
            _ => {}
        }
        Ok(Some(message))
    }

    /// Returns whether the message is not of a process that was killed.
    fn is_current(&self, message: &WorkerMessage) -> bool {
        let current = self.workers.get(message.worker as usize);
        current.is_none_or(|current| current.process == message.process)
    }

    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        self.recording.began_us = monotonic_us();
        for worker in &mut self.workers {
            worker.order(WorkerOrder::Begin).await?;
        }
        Ok(())
    }

    /// Lets the clients work for this time.
    pub(super) async fn work_for(&mut self, duration: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + duration;
        while self.next(until).await?.is_some() {}
        Ok(())
    }

    /// Holds the next client of this worker that acquires the lock, between its read and its write.
    /// `None` if none acquires it in time.
    pub(super) async fn hold(&mut self, worker: u32) -> anyhow::Result<Option<Holder>> {
        self.workers[worker as usize].order(WorkerOrder::Hold).await?;
        let limit_ms = 2 * self.options.wait_ms + 2 * self.plan.ttl_ms;
        let until = Instant::now() + Duration::from_millis(limit_ms);
        while let Some(message) = self.next(until).await? {
            if let Some(WorkerReport::Holding(turn)) = message.report {
                let id = ClientId { worker: message.worker, client: turn.client };
                return Ok(Some(RecordedTurn { id, turn }));
            }
        }
        // Holds none any more.
        self.go(worker, Duration::ZERO).await?;
        Ok(None)
    }

    /// Lets the held client write; its commit takes this time.
    pub(super) async fn go(&mut self, worker: u32, commit: Duration) -> anyhow::Result<()> {
        let commit_ms = u64::try_from(commit.as_millis())?;
        self.workers[worker as usize].order(WorkerOrder::Go { commit_ms }).await
    }

    pub(super) async fn pause(&mut self, holder: &Holder) -> anyhow::Result<()> {
        self.workers[holder.id.worker as usize].pause().await?;
        self.mark(holder, "paused");
        Ok(())
    }

    pub(super) fn resume(&mut self, holder: &Holder) {
        self.mark(holder, "continued");
        self.workers[holder.id.worker as usize].resume();
    }

    fn mark(&mut self, holder: &Holder, event: &'static str) {
        self.recording.marks.push(Mark { at_us: monotonic_us(), id: holder.id, event });
    }

    /// Kills the worker of the holder, and starts another in its place.
    pub(super) async fn kill(&mut self, holder: &Holder) -> anyhow::Result<()> {
        let worker = holder.id.worker;
        self.mark(holder, "killed");
        let mut turn = holder.turn;
        // At least until here it held the lock.
        turn.release_us = monotonic_us();
        self.workers[worker as usize].kill().await;
        self.recording.turns.push(RecordedTurn { id: holder.id, turn });
        self.workers[worker as usize] = self.start_worker(worker).await?;
        self.wait_ready(self.processes).await?;
        self.workers[worker as usize].order(WorkerOrder::Begin).await
    }

    /// Returns why the clock of an adapter can't jump, if there is one.
    pub(super) async fn find_fixed_clock(&self) -> Option<String> {
        for worker in &self.workers {
            if let Some(why) = worker.find_fixed_clock().await {
                return Some(why);
            }
        }
        None
    }

    /// Returns the link of a worker to Redis.
    pub(super) fn redis_link(&self, worker: u32) -> &Proxy {
        &self.redis_proxies[worker as usize]
    }

    pub(super) fn redis_links(&self) -> &[Proxy] {
        &self.redis_proxies
    }

    /// Moves all links to another Redis.
    pub(super) fn repoint(&self, socket: &Path) {
        for proxy in &self.redis_proxies {
            proxy.repoint(socket);
        }
    }

    /// Ends the work, and waits until the clients have finished their turns.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        self.recording.ended_us = monotonic_us();
        for worker in &mut self.workers {
            worker.order(WorkerOrder::End).await?;
        }
        let answer = self.plan.answer_timeout_ms + 3 * self.plan.ttl_ms + self.options.wait_ms;
        let until = Instant::now() + END_TIMEOUT + Duration::from_millis(2 * answer);
        let mut running = self.workers.len();
        while running > 0 {
            let message = self.next(until).await?.context("the clients don't end their turns")?;
            if let Some(WorkerReport::Ended { last_error }) = message.report {
                running -= 1;
                self.recording.last_error = last_error.or(self.recording.last_error.take());
            }
        }
        Ok(())
    }

    /// Kills workers and servers; returns the record.
    pub(super) async fn take_down(mut self) -> Recording {
        for worker in &mut self.workers {
            worker.kill().await;
        }
        self.recording
    }
}
