//! Stage of one pass: servers, proxies and workers, started afresh for each fault.

use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_base::messages::Message;
use holdfast_lock::clock::monotonic_us;
use holdfast_story::EventKind;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::events::{Mark, Recording};
use super::fault::Fault;
use super::plan::{ADAPTER_START, AWAY, JudgePlan};
use super::processes;
use super::protocol::{Turn, WorkerOrder, WorkerReport, WorkerSetup};
use super::report::{Actor, Adapter, ClientId, Server};
use super::servers::RedisServers;
use super::worker_process::{WorkerMessage, WorkerProcess};
use holdfast_services::{Proxy, TempPostgres};

/// Time for a worker to start, besides that of its adapter.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the last turns to end, without the waits of the adapter.
const END_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) plan: &'a JudgePlan,
    pub(super) fault: Fault,
    pub(super) pass: i64,
    seed: u64,
    /// Environment of the adapters, besides the user's.
    env: Vec<(String, String)>,
    postgres: &'a TempPostgres,
    /// Postgres listens on its socket only; not every client library can connect to that.
    postgres_proxy: Proxy,
    pub(super) redis: RedisServers,
    pub(super) redis_links: Vec<Proxy>,
    workers: Vec<WorkerProcess>,
    sender: mpsc::UnboundedSender<WorkerMessage>,
    messages: mpsc::UnboundedReceiver<WorkerMessage>,
    processes: u32,
    /// Number of those whose adapters have answered `init`.
    ready: u32,
    pub(super) recording: Recording,
    pub(super) adapter: Option<Adapter>,
}

impl<'a> Stage<'a> {
    /// Starts servers, proxies and workers, and waits until all adapters have answered `init`.
    pub(super) async fn set_up(
        plan: &'a JudgePlan,
        fault: Fault,
        (pass, seed): (i64, u64),
        env: Vec<(String, String)>,
        postgres: &'a TempPostgres,
    ) -> anyhow::Result<Self> {
        let redis = RedisServers::start(fault == Fault::RedisFailover).await?;
        let mut redis_links = Vec::new();
        for _ in 0..plan.args.workers {
            redis_links.push(Proxy::start(&redis.primary.socket()).await?);
        }

        let (sender, messages) = mpsc::unbounded_channel();
        let mut stage = Self {
            plan,
            fault,
            pass,
            seed,
            env,
            postgres,
            postgres_proxy: Proxy::start(&postgres.socket()).await?,
            redis,
            redis_links,
            workers: Vec::new(),
            sender,
            messages,
            processes: 0,
            ready: 0,
            recording: Recording::default(),
            adapter: None,
        };

        for worker in 0..plan.args.workers {
            let process = stage.start_worker(worker).await?;
            stage.workers.push(process);
        }
        stage.wait_ready().await?;
        Ok(stage)
    }

    async fn start_worker(&mut self, worker: u32) -> anyhow::Result<WorkerProcess> {
        let plan = self.plan;
        let mut args = plan.args.clone();
        args.env.extend(self.env.clone());
        args.wait_ms = self.wait_ms();

        // A proxy would add to the waits.
        let redis = match self.fault {
            Fault::Undisturbed => self.redis.primary.port,
            _ => self.redis_links[worker as usize].port,
        };
        let setup = WorkerSetup {
            worker,
            args,
            redis_url: format!("redis://:{}@127.0.0.1:{redis}/0", self.redis.primary.password),
            database_url: format!(
                "postgres://holdfast:{}@127.0.0.1:{}/holdfast?sslmode=disable",
                self.postgres.password, self.postgres_proxy.port
            ),
            ledger_url: self.postgres.url(),
            key: format!("item:{}", plan.unique_part(self.pass)),
            answer_timeout: plan.answer_timeout(),
            cancels: self.fault == Fault::Cancel,
            seed: self.seed,
            pass: self.pass,
        };

        self.processes += 1;
        WorkerProcess::start(&setup, self.processes, self.sender.clone()).await
    }

    /// Returns the time for which clients wait; several waits end while Redis is away.
    fn wait_ms(&self) -> u64 {
        let wait_ms = self.plan.args.wait_ms;
        let away = self.fault == Fault::RedisAway;
        if away { wait_ms.min(AWAY.as_millis() as u64 / 4) } else { wait_ms }
    }

    async fn wait_ready(&mut self) -> anyhow::Result<()> {
        let adapter = ADAPTER_START + self.plan.answer_timeout();
        let until = Instant::now() + START_TIMEOUT + adapter;
        while self.ready < self.processes {
            self.next(until).await?.context("a worker is not ready in time")?;
        }
        Ok(())
    }

    /// Receives the next message; turns are recorded. `None` if there is none in time. Fails if a
    /// worker has failed or ended.
    async fn next(&mut self, until: Instant) -> anyhow::Result<Option<WorkerMessage>> {
        let Ok(message) = timeout_at(until, self.messages.recv()).await else { return Ok(None) };
        let message = message.context("the workers have ended")?;

        match &message.report {
            Some(WorkerReport::Turn(turn)) => self.recording.turns.push(*turn),
            Some(WorkerReport::Ready(adapter)) => {
                self.ready += 1;
                self.adapter.get_or_insert_with(|| adapter.clone());
            }
            Some(WorkerReport::Failed(failure)) if self.is_current(&message) => {
                let failure = anyhow::Error::new(failure.clone());
                return Err(failure.context(format!("worker {}", message.worker)));
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
    pub(super) async fn hold(&mut self, worker: u32) -> anyhow::Result<Option<Turn>> {
        let limit = Duration::from_millis(2 * self.wait_ms()) + self.plan.ttl(2.0);
        self.hold_within(worker, limit).await
    }

    /// As [`Self::hold`], for at most this time.
    pub(super) async fn hold_within(
        &mut self,
        worker: u32,
        limit: Duration,
    ) -> anyhow::Result<Option<Turn>> {
        self.workers[worker as usize].order(WorkerOrder::Hold).await?;
        let until = Instant::now() + limit;
        while let Some(message) = self.next(until).await? {
            if let Some(WorkerReport::Holding(turn)) = message.report {
                return Ok(Some(turn));
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

    pub(super) async fn pause(&mut self, holder: ClientId) -> anyhow::Result<()> {
        processes::stop_tree(self.workers[holder.worker as usize].leader).await?;
        self.mark(holder, EventKind::Paused);
        Ok(())
    }

    pub(super) fn resume(&mut self, holder: ClientId) {
        self.mark(holder, EventKind::Resumed);
        processes::signal_tree(self.workers[holder.worker as usize].leader, Signal::CONT);
    }

    fn mark(&mut self, id: ClientId, kind: EventKind) {
        let actor = Actor { server: None, id };
        self.recording.marks.push(Mark { at_us: monotonic_us(), actor, kind });
    }

    /// Records what happened to a server while this client held the lock.
    pub(super) fn mark_server(&mut self, server: Server, kind: EventKind, holder: ClientId) {
        let actor = Actor { server: Some(server), id: holder };
        self.recording.marks.push(Mark { at_us: monotonic_us(), actor, kind });
    }

    /// Kills the worker of the holder, and starts another in its place.
    pub(super) async fn kill(&mut self, mut turn: Turn) -> anyhow::Result<()> {
        let worker = turn.id.worker;
        self.mark(turn.id, EventKind::Killed);
        // At least until here it held the lock.
        turn.release_us = monotonic_us();
        self.workers[worker as usize].kill().await;
        // Until they have ended, stopped clients are still connected, and may be passed the lock.
        self.recording.struck = Some((turn.release_us, monotonic_us()));
        self.recording.turns.push(turn);

        self.workers[worker as usize] = self.start_worker(worker).await?;
        self.wait_ready().await?;
        self.workers[worker as usize].order(WorkerOrder::Begin).await
    }

    /// Returns why the clock of an adapter can't jump, if there is one.
    pub(super) async fn find_fixed_clock(&self) -> Option<Message> {
        for worker in &self.workers {
            if let Some(why) = processes::find_fixed_clock(worker.leader).await {
                return Some(why);
            }
        }
        None
    }

    /// Ends the work, and waits until the clients have finished their turns.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        self.recording.ended_us = monotonic_us();
        for worker in &mut self.workers {
            worker.order(WorkerOrder::End).await?;
        }

        // A turn asks twice.
        let answer = self.plan.answer_timeout() + Duration::from_millis(self.wait_ms());
        let until = Instant::now() + END_TIMEOUT + 2 * answer;
        let mut running = self.workers.len();
        while running > 0 {
            let message = self.next(until).await?.context("the clients don't end their turns")?;
            if let Some(WorkerReport::Ended { last_error, last_words }) = message.report {
                running -= 1;
                self.recording.last_error = last_error.or(self.recording.last_error.take());
                if self.recording.last_words.is_empty() {
                    self.recording.last_words = last_words;
                }
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
