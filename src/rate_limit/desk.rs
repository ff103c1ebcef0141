//! Takes permits from the buckets in Redis, with one call at a time per process.
//!
//! Requests that arrive during a call share the next one. If a call fails, this replica applies the
//! whole limit alone until Redis responds again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use rand::RngExt as _;
use redis::{RedisError, Script};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::bucket::{self, Grant};
use super::page::Entry;
use super::{Rate, SharedPage, Ticket};
use crate::clock::monotonic_us;
use crate::lock::Redis;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("bucket.lua")));

/// Upper bound of buckets per call, because a script blocks Redis for all other clients.
const MOST_AT_ONCE: usize = 128;
/// Timeout of a call, after which the limit of this replica alone decides.
const PATIENCE: Duration = Duration::from_millis(200);
/// Interval of the checks for a Redis that was unavailable; each is jittered by half of it.
const LOOK_AGAIN: Duration = Duration::from_millis(400);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Pass,
    Refused {
        wait_us: u64,
    },
    /// Redis does not respond.
    Alone,
}

#[derive(Debug)]
pub(super) struct Desk {
    redis: Redis,
    prefix: String,
    line: Mutex<Line>,
    /// Set when a call failed, until Redis responds again; Redis is not called while it is set.
    alone: AtomicBool,
}

#[derive(Debug, Default)]
struct Line {
    waiting: HashMap<String, Waiting>,
    /// True while a task calls Redis; requests that join are part of its next call.
    served: bool,
}

/// Requests that wait for permits of one bucket.
#[derive(Debug)]
struct Waiting {
    rate: Rate,
    page: SharedPage,
    who: Vec<oneshot::Sender<Told>>,
}

#[derive(Debug)]
struct Wanted {
    name: String,
    waiting: Waiting,
    ahead: u64,
}

impl Desk {
    pub fn new(redis: Redis, prefix: &str) -> Self {
        let (line, alone) = (Mutex::default(), AtomicBool::new(false));
        Self { redis, prefix: prefix.to_owned(), line, alone }
    }

    /// Requests one permit per ticket.
    pub async fn ask(self: &Arc<Self>, tickets: &[Ticket]) -> Vec<Told> {
        if self.alone.load(Ordering::Relaxed) {
            return vec![Told::Alone; tickets.len()];
        }
        let (answers, serve) = {
            let mut line = self.line.lock();
            let answers: Vec<_> = tickets.iter().map(|ticket| line.join(ticket)).collect();
            (answers, !std::mem::replace(&mut line.served, true))
        };
        if serve {
            let desk = Arc::clone(self);
            self.redis.runtime().spawn(async move { desk.serve().await });
        }
        // The calling task may have panicked: the local limit decides then.
        join_all(answers).await.into_iter().map(|told| told.unwrap_or(Told::Alone)).collect()
    }

    async fn serve(self: &Arc<Self>) {
        let _closing = Closing(self);
        while let Some(wanted) = self.take() {
            if wanted.is_empty() {
                continue;
            }
            let asked_us = monotonic_us();
            metrics::counter!("holdfast_limit_calls_total").increment(1);
            let granted = match timeout(PATIENCE, self.call(&wanted)).await {
                Ok(granted) => granted.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} ms", PATIENCE.as_millis())),
            };
            match granted {
                Ok(granted) => {
                    for (wanted, grant) in wanted.into_iter().zip(granted) {
                        wanted.waiting.answer(grant, asked_us);
                    }
                }
                Err(why) => {
                    self.lose(&why);
                    for waiting in wanted.into_iter().map(|wanted| wanted.waiting) {
                        for one in waiting.who {
                            let _ = one.send(Told::Alone);
                        }
                    }
                }
            }
        }
    }

    /// Returns the buckets of the next call; `None` if no request waits, and then the task ends.
    /// Requests that a lease in the local state covers by now pass without a call.
    fn take(&self) -> Option<Vec<Wanted>> {
        let mut line = self.line.lock();
        let names: Vec<String> = line.waiting.keys().take(MOST_AT_ONCE).cloned().collect();
        let mut wanted = Vec::with_capacity(names.len());
        for name in names {
            let Some(mut waiting) = line.waiting.remove(&name) else { continue };
            let now_us = monotonic_us();
            let page = waiting.page.clone();
            let mut page = page.lock();
            waiting.who.retain(|one| !one.is_closed());
            while !waiting.who.is_empty() && page.spend(now_us) == Entry::Pass {
                waiting.who.pop().map(|one| one.send(Told::Pass));
            }
            if !waiting.who.is_empty() {
                let ahead = page.ahead(waiting.rate, now_us);
                wanted.push(Wanted { name, waiting, ahead });
            }
        }
        if wanted.is_empty() && line.waiting.is_empty() {
            line.served = false;
            return None;
        }
        Some(wanted)
    }

    async fn call(&self, wanted: &[Wanted]) -> Result<Vec<Grant>, RedisError> {
        let call = |some: &[Wanted]| {
            let mut call = SCRIPT.prepare_invoke();
            for Wanted { name, waiting: Waiting { rate, who, .. }, ahead } in some {
                call.key(format!("{}limit:{{{name}}}", self.prefix));
                call.arg(&bucket::script_arguments(*rate)).arg(who.len()).arg(*ahead);
            }
            self.redis.invoke::<Vec<(u64, u64, u64, u64, u64)>>(call)
        };
        // In a Cluster the buckets lie on several nodes.
        let most = if self.redis.is_cluster() { 1 } else { MOST_AT_ONCE };
        let answers = try_join_all(wanted.chunks(most).map(call)).await?;
        let grant = |(at_once, ahead, left, wait_us, full_us)| Grant {
            at_once,
            ahead,
            left,
            wait_us,
            full_us,
        };
        Ok(answers.into_iter().flatten().map(grant).collect())
    }

    /// Applies the limit of this replica alone from now on, until Redis responds again.
    fn lose(self: &Arc<Self>, why: &str) {
        if self.alone.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            why,
            "limits are not shared while Redis is away: each replica keeps its own"
        );
        metrics::gauge!("holdfast_limits_alone").set(1.0);
        let desk = Arc::downgrade(self);
        self.redis.runtime().spawn(find_again(desk));
    }

    pub async fn remember(&self, what: &str, long: Duration) {
        let mut command = redis::cmd("SET");
        let long_ms = u64::try_from(long.as_millis()).unwrap_or(u64::MAX);
        command.arg(self.known(what)).arg(1).arg("PX").arg(long_ms);
        self.say::<()>(command).await;
    }

    pub async fn knows(&self, what: &str) -> bool {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.known(what));
        self.say(command).await == Some(1_u64)
    }

    fn known(&self, what: &str) -> String {
        format!("{}known:{{{what}}}", self.prefix)
    }

    /// Sends a command; returns `None` if Redis is unavailable.
    async fn say<T: redis::FromRedisValue + Send + 'static>(
        &self,
        command: redis::Cmd,
    ) -> Option<T> {
        if self.alone.load(Ordering::Relaxed) {
            return None;
        }
        timeout(PATIENCE, self.redis.query(command)).await.ok()?.ok()
    }
}

/// Checks until Redis responds or the [`Desk`] is dropped.
async fn find_again(desk: Weak<Desk>) {
    loop {
        let pause = LOOK_AGAIN.mul_f64(rand::rng().random_range(0.5..1.5));
        sleep(pause).await;
        let Some(desk) = desk.upgrade() else { return };
        if matches!(timeout(PATIENCE, desk.redis.ping()).await, Ok(Ok(()))) {
            tracing::info!("Redis is back: limits are shared again");
            metrics::gauge!("holdfast_limits_alone").set(0.0);
            desk.alone.store(false, Ordering::Relaxed);
            return;
        }
    }
}

impl Line {
    fn join(&mut self, ticket: &Ticket) -> oneshot::Receiver<Told> {
        let (told, answer) = oneshot::channel();
        let waiting = self.waiting.entry(ticket.name.clone()).or_insert_with(|| Waiting {
            rate: ticket.policy.rate,
            page: ticket.page.clone(),
            who: Vec::new(),
        });
        waiting.who.push(told);
        answer
    }
}

impl Waiting {
    /// Assigns the granted permits in FIFO order.
    fn answer(self, grant: Grant, asked_us: u64) {
        self.page.lock().granted(self.rate, grant, asked_us, monotonic_us());
        let granted = usize::try_from(grant.at_once).unwrap_or(usize::MAX);
        for (place, one) in self.who.into_iter().enumerate() {
            let refused = Told::Refused { wait_us: grant.wait_us };
            let _ = one.send(if place < granted { Told::Pass } else { refused });
        }
    }
}

/// Resets the queue if the calling task panics, so that the next request starts a new task.
struct Closing<'d>(&'d Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.line.lock() = Line::default();
        }
    }
}
