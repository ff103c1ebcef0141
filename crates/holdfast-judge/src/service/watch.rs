//! What the judge sees of the statements of a service, and what it does with them: it delays them,
//! or their answers, and strikes at one.

use std::collections::{BTreeSet, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use holdfast_lock::clock::monotonic_us;
use holdfast_services::{Exchange, ServerKind, Watcher};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::learned::Learned;
use super::sql::{Access, is_commit};
use super::steps::Steps;

/// How late an answer is, and a commit, in milliseconds.
const LATE_ANSWER_MS: std::ops::RangeInclusive<u64> = 5..=20;
const LATE_COMMIT_MS: std::ops::RangeInclusive<u64> = 50..=200;

/// All links of a service.
#[derive(Debug, Default)]
pub(super) struct Watch {
    learned: Mutex<Learned>,
    seen: Mutex<Vec<Seen>>,
    /// The commands to Redis that were seen.
    commands: Mutex<Vec<Seen>>,
    last_us: AtomicU64,
    /// Connections with an unfinished statement or transaction of a request.
    busy: Mutex<HashSet<(usize, u64)>>,
    /// Of what comes late, if anything does.
    delays: Mutex<Option<Delays>>,
    armed: Mutex<Option<Armed>>,
    /// Passes the statements of two requests one at a time.
    pub(super) steps: Steps,
    /// Connections whose transaction has written the stock.
    writing: Mutex<HashSet<(usize, u64)>>,
    /// Why later commands to Redis were not seen.
    pub(super) unread: Mutex<BTreeSet<&'static str>>,
}

#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) instance: usize,
    pub(super) exchange: Exchange,
}

/// The part of the traffic that comes late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DelayTarget {
    Answers,
    /// The `COMMIT` of transactions that have written the stock, on its way to the server: their
    /// locks stay, and what they have written is not seen.
    Commits,
}

/// How late it comes.
#[derive(Debug)]
pub(super) struct Delays {
    late: DelayTarget,
    random: StdRng,
    /// Of the first one.
    first: Option<Duration>,
    /// Number of those that came late.
    count: usize,
}

impl Delays {
    pub(super) fn new(late: DelayTarget, seed: u64, first: Option<Duration>) -> Self {
        Self { late, random: StdRng::seed_from_u64(seed), first, count: 0 }
    }

    fn choose(&mut self) -> Duration {
        self.count += 1;
        let ms = match self.late {
            DelayTarget::Answers => LATE_ANSWER_MS,
            DelayTarget::Commits => LATE_COMMIT_MS,
        };
        let random = Duration::from_millis(self.random.random_range(ms));
        self.first.take().unwrap_or(random)
    }
}

/// The statement of an order at which something is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// Any statement, once it was answered.
    Answer,
    Read,
    Write,
    Commit,
    /// A `COMMIT` that has not reached the server.
    CommitSent,
}

#[derive(Debug)]
struct Armed {
    aim: Aim,
    /// The only one that is struck.
    instance: Option<usize>,
    strike: oneshot::Sender<Strike>,
}

/// An instance whose statement, or its answer, is held.
#[derive(Debug)]
pub(super) struct Strike {
    pub(super) instance: usize,
    /// Lets it go on, or not, and then its connection is closed.
    pub(super) go: oneshot::Sender<bool>,
}

impl Watch {
    pub(super) fn set_learned(&self, learned: Learned) {
        *self.learned.lock() = learned;
    }

    fn note_time(&self) {
        self.last_us.store(monotonic_us(), Ordering::Relaxed);
    }

    /// Notes the time of what is sent or answered, unless it is of no request. What is sent in the
    /// transaction of an order is of one: its `COMMIT` has the name of a job's.
    fn note(&self, instance: usize, exchanges: &[Exchange]) {
        let connection = exchanges.last().map(|last| (instance, last.connection));
        let is_of_nobody = self.steps.are_of_nobody(exchanges);
        let mut busy = self.busy.lock();
        if !is_of_nobody {
            busy.extend(connection);
        }
        if !is_of_nobody || connection.is_some_and(|connection| busy.contains(&connection)) {
            self.note_time();
        }
    }

    /// Begins a run: forgets what was seen.
    pub(super) fn begin(&self, delays: Option<Delays>) {
        self.seen.lock().clear();
        self.commands.lock().clear();
        self.writing.lock().clear();
        *self.delays.lock() = delays;
    }

    /// Strikes at the next such statement, of one instance or of any; the receiver learns of it.
    pub(super) fn arm(&self, aim: Aim, instance: Option<usize>) -> oneshot::Receiver<Strike> {
        let (strike, struck) = oneshot::channel();
        *self.armed.lock() = Some(Armed { aim, instance, strike });
        struck
    }

    pub(super) fn disarm(&self) {
        *self.armed.lock() = None;
    }

    /// Returns how much came late since the run began.
    pub(super) fn delayed(&self) -> usize {
        self.delays.lock().as_ref().map_or(0, |delays| delays.count)
    }

    fn delay(&self, late: DelayTarget) -> Option<Duration> {
        let mut delays = self.delays.lock();
        delays.as_mut().filter(|delays| delays.late == late).map(Delays::choose)
    }

    /// Returns what was seen since the run began, by the time of the answers.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Returns the commands to Redis since the run began, by the time of the answers.
    pub(super) fn commands(&self) -> Vec<Seen> {
        self.commands.lock().clone()
    }

    /// Returns whether anything was seen since the run began that writes the stock.
    pub(super) fn has_seen_write(&self) -> bool {
        self.seen.lock().iter().any(|seen| self.access(&seen.exchange) == Some(Access::Write))
    }

    /// Returns the time since the last statement or answer; none while a transaction is open that
    /// has written the stock. One that has only read may stay open for ever in a pool.
    pub(super) fn quiet_for(&self) -> Duration {
        let last = self.last_us.load(Ordering::Relaxed);
        let quiet = Duration::from_micros(monotonic_us().saturating_sub(last));
        let is_open = !self.writing.lock().is_empty();
        if is_open { Duration::ZERO } else { quiet }
    }

    /// Returns what an exchange does with the stock: the strongest of its statements.
    fn access(&self, exchange: &Exchange) -> Option<Access> {
        let learned = self.learned.lock();
        let statements = exchange.statements.iter().filter(|it| it.error.is_none());
        statements.filter_map(|statement| learned.access(&statement.text)).max()
    }

    /// Returns whether an exchange is the `COMMIT` of a transaction that has written the stock.
    fn is_commit(&self, instance: usize, exchange: &Exchange) -> bool {
        let is_writing = self.writing.lock().contains(&(instance, exchange.connection));
        is_writing && exchange.statements.iter().any(|statement| is_commit(&statement.text))
    }

    /// Returns whom to tell of an answer, if it is the one that is aimed at.
    fn take_aim(&self, instance: usize, exchange: &Exchange) -> Option<oneshot::Sender<Strike>> {
        let access = self.access(exchange);
        let connection = (instance, exchange.connection);
        let mut writing = self.writing.lock();
        if access == Some(Access::Write) {
            writing.insert(connection);
        }
        let has_written = writing.contains(&connection);
        let is_commit = has_written && !exchange.in_transaction;
        if !exchange.in_transaction {
            writing.remove(&connection);
        }

        self.take_armed(instance, |aim| match aim {
            Aim::Answer => true,
            Aim::Read => access == Some(Access::Read) && !has_written,
            Aim::Write => access == Some(Access::Write),
            Aim::Commit => is_commit,
            Aim::CommitSent => false,
        })
    }

    fn take_armed(
        &self,
        instance: usize,
        is_aimed_at: impl FnOnce(Aim) -> bool,
    ) -> Option<oneshot::Sender<Strike>> {
        let mut armed = self.armed.lock();
        let armed = armed.take_if(|armed| {
            armed.instance.is_none_or(|only| only == instance) && is_aimed_at(armed.aim)
        });
        armed.map(|armed| armed.strike)
    }
}

/// The link of an instance to Postgres.
#[derive(Debug)]
pub(super) struct LinkWatch {
    pub(super) watch: Arc<Watch>,
    pub(super) instance: usize,
}

impl LinkWatch {
    /// Holds a statement or an answer, and returns whether it goes on.
    async fn hold(&self, delay: Option<Duration>, strike: Option<oneshot::Sender<Strike>>) -> bool {
        if let Some(delay) = delay {
            sleep(delay).await;
        }
        let Some(strike) = strike else { return true };
        let (go, goes) = oneshot::channel();
        match strike.send(Strike { instance: self.instance, go }) {
            // Without an answer the judge has ended, or needs to know no more.
            Ok(()) => goes.await.unwrap_or(true),
            Err(_) => true,
        }
    }
}

impl Watcher for LinkWatch {
    fn sent(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, bool> {
        self.watch.note(self.instance, &exchanges);
        let held = self.watch.steps.hold(self.instance, &exchanges);
        let (mut delay, mut strike) = (None, None);
        if exchanges.iter().any(|exchange| self.watch.is_commit(self.instance, exchange)) {
            delay = self.watch.delay(DelayTarget::Commits);
            strike = self.watch.take_armed(self.instance, |aim| aim == Aim::CommitSent);
        }
        Box::pin(async move {
            if let Some(held) = held {
                // Without a word the schedule is over.
                let _ = held.await;
            }
            self.hold(delay, strike).await
        })
    }

    fn answered(&self, exchange: Exchange) -> BoxFuture<'_, bool> {
        self.watch.note(self.instance, std::slice::from_ref(&exchange));
        if !exchange.in_transaction {
            self.watch.busy.lock().remove(&(self.instance, exchange.connection));
        }
        self.watch.steps.answered(self.instance, &exchange);
        let strike = self.watch.take_aim(self.instance, &exchange);
        let delay = self.watch.delay(DelayTarget::Answers);
        self.watch.seen.lock().push(Seen { instance: self.instance, exchange });
        Box::pin(self.hold(delay, strike))
    }

    fn closed(&self, connection: u64) {
        // Of what is under way, the end is not seen. A job may reconnect all the time.
        if self.watch.busy.lock().remove(&(self.instance, connection)) {
            self.watch.note_time();
        }
        self.watch.writing.lock().remove(&(self.instance, connection));
        self.watch.steps.closed(self.instance, ServerKind::Postgres, connection);
    }
}

/// The link of an instance to Redis. Its commands are scheduled and noted, and nothing else is done
/// with them.
#[derive(Debug)]
pub(super) struct RedisWatch {
    pub(super) watch: Arc<Watch>,
    pub(super) instance: usize,
}

impl Watcher for RedisWatch {
    fn sent(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, bool> {
        let held = self.watch.steps.hold(self.instance, &exchanges);
        Box::pin(async move {
            if let Some(held) = held {
                // Without a word the schedule is over.
                let _ = held.await;
            }
            true
        })
    }

    fn answered(&self, exchange: Exchange) -> BoxFuture<'_, bool> {
        self.watch.steps.answered(self.instance, &exchange);
        self.watch.commands.lock().push(Seen { instance: self.instance, exchange });
        Box::pin(ready(true))
    }

    fn closed(&self, connection: u64) {
        self.watch.steps.closed(self.instance, ServerKind::Redis, connection);
    }

    fn unread(&self, why: &'static str) {
        self.watch.unread.lock().insert(why);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_services::Statement;

    use super::*;
    use crate::service::sql::fingerprint;

    fn exchange(sql: &str, in_transaction: bool) -> Exchange {
        let mut exchange = Exchange::default();
        exchange.in_transaction = in_transaction;
        exchange.statements = vec![Statement { text: sql.into(), ..Statement::default() }];
        exchange
    }

    /// Returns whether something resets the quiet of a service.
    fn resets(watch: &Watch, act: impl FnOnce()) -> bool {
        watch.last_us.store(0, Ordering::Relaxed);
        act();
        watch.last_us.load(Ordering::Relaxed) > 0
    }

    #[test]
    fn end_of_an_order_is_no_quiet_and_that_of_a_job_is() {
        let link = LinkWatch { watch: Arc::default(), instance: 0 };
        let watch = &link.watch;
        let [mut job, mut end_of_job] = [exchange("select job", true), exchange("commit", false)];
        (job.connection, end_of_job.connection) = (1, 1);
        watch.steps.begin_idle();
        assert!(watch.steps.hold(0, std::slice::from_ref(&job)).is_none());
        watch.steps.end();

        let passes = |exchange: &Exchange| {
            resets(watch, || {
                drop(link.sent(vec![exchange.clone()]));
                drop(link.answered(exchange.clone()));
            })
        };
        assert!(!passes(&job) && !passes(&end_of_job));
        let (write, end) = (exchange("update goods", true), exchange("commit", false));
        assert!(passes(&write) && passes(&end));
        // Also a job's, on the connection of the order.
        assert!(!passes(&end));

        let closes = |connection| resets(watch, || link.closed(connection));
        assert!(!closes(1));
        assert!(passes(&write) && closes(0) && !closes(0));
    }

    /// As by a trigger of the sales.
    #[test]
    fn write_that_names_no_table_of_the_stock_is_struck() {
        let insert = exchange("insert into sales (item) values ('tea')", true);
        let commit = exchange("commit", false);
        let watch = Watch::default();
        let strikes = |aim, exchange: &Exchange| {
            let _struck = watch.arm(aim, None);
            watch.take_aim(0, exchange).is_some()
        };
        let mut learned = Learned { tables: vec!["goods".to_owned()], ..Learned::default() };
        watch.set_learned(learned.clone());
        assert!(!strikes(Aim::Write, &insert));
        assert!(!watch.is_commit(0, &commit));
        assert!(strikes(Aim::Answer, &commit));

        learned.hidden_writes.push(fingerprint("insert into sales (item) values ('coffee')"));
        watch.set_learned(learned);
        assert!(strikes(Aim::Write, &insert));
        assert!(watch.is_commit(0, &commit));
        assert!(strikes(Aim::Commit, &commit));
    }
}
