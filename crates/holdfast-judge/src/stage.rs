//! Stage of one pass: servers, proxies and workers, started afresh for each fault.

use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_base::messages::Message;
use holdfast_lock::clock::monotonic_us;
use holdfast_story::{EventKind, TimelineEvent};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::clocks::Clocks;
use super::events::Recording;
use super::fault::Fault;
use super::links::WorkerLinks;
use super::plan::{ADAPTER_START, AWAY, JudgePlan};
use super::processes;
use super::protocol::{Turn, WorkerOrder, WorkerReport};
use super::report::{Actor, Adapter, ClientId, StruckServer};
use super::servers::RedisServers;
use super::worker_process::{WorkerMessage, WorkerProcess};
use holdfast_services::TempPostgres;

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
    /// The clocks of the adapters, if a fault moves one.
    pub(super) clocks: Option<Clocks>,
    postgres: &'a TempPostgres,
    pub(super) redis: RedisServers,
    /// Those of each worker.
    pub(super) links: Vec<WorkerLinks>,
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
        clocks: Option<Clocks>,
        postgres: &'a TempPostgres,
    ) -> anyhow::Result<Self> {
        let redis = RedisServers::start(fault == Fault::RedisFailover).await?;
        let mut links = Vec::new();
        for _ in 0..plan.args.workers {
            links.push(WorkerLinks::start(&redis.primary, postgres, &plan.backends).await?);
        }

        let (sender, messages) = mpsc::unbounded_channel();
        let mut stage = Self {
            plan,
            fault,
            pass,
            seed,
            clocks,
            postgres,
            redis,
            links,
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
        let links = &self.links[worker as usize];
        // A proxy would add to the waits.
        let is_behind = self.fault != Fault::Undisturbed;
        let redis = if is_behind { links.redis.port } else { self.redis.primary.port };
        let redis_url = format!("redis://:{}@127.0.0.1:{redis}/0", self.redis.primary.password);
        let database = (self.postgres, "holdfast");

        let mut setup = links.setup(self.plan, (worker, self.pass), redis_url, database);
        setup.args.env.extend(links.variables(is_behind));
        setup.args.env.extend(self.clocks.iter().flat_map(|clocks| clocks.environment(worker)));
        setup.args.wait_ms = self.wait_ms();
        setup.cancels = self.fault == Fault::Cancel;
        setup.seed = self.seed;

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
        processes::stop_tree(self.workers[holder.worker as usize].kept.leader).await?;
        self.mark(None, EventKind::Paused, holder);
        Ok(())
    }

    pub(super) fn resume(&mut self, holder: ClientId) {
        self.mark(None, EventKind::Resumed, holder);
        processes::signal_tree(self.workers[holder.worker as usize].kept.leader, Signal::CONT);
    }

    /// Records what happened to a client's worker, or to a server while that client held the lock.
    pub(super) fn mark(&mut self, server: Option<StruckServer>, kind: EventKind, id: ClientId) {
        let event = TimelineEvent::new(Actor { server, id }, monotonic_us(), kind);
        self.recording.marks.push(event);
    }

    /// Notes whether a fault of the network strikes a worker: one without a connection now may open
    /// one for each command.
    pub(super) fn note_reach(&mut self, worker: u32) {
        self.recording.struck_connections = Some(self.links[worker as usize].accepted());
    }

    /// Closes the connections of the holder's adapter.
    pub(super) async fn cut_sessions(&mut self, holder: ClientId) {
        let links = &self.links[holder.worker as usize];
        self.recording.struck_connections = Some(links.connections());
        links.close_connections().await;
        self.mark(None, EventKind::Closed, holder);
    }

    /// Kills the worker of the holder, and starts another in its place.
    pub(super) async fn kill(&mut self, mut turn: Turn) -> anyhow::Result<()> {
        let worker = turn.id.worker;
        self.mark(None, EventKind::Killed, turn.id);
        // At least until here it held the lock.
        turn.release_us = monotonic_us();
        self.workers[worker as usize].kept.kill().await;
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
            if let Some(why) = processes::find_fixed_clock(worker.kept.leader).await {
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
        self.recording.bypassed = self.links.iter().all(WorkerLinks::are_bypassed);
        for worker in &mut self.workers {
            worker.kept.kill().await;
        }
        self.recording
    }
}
