//! One run: a new item is sold under a pass, and the books are balanced.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join;
use holdfast_base::message;
use holdfast_base::messages::Message;
use sqlx::Connection as _;
use tokio::time::{Instant, sleep};

use super::balances::figures;
use super::buyers::{Answered, AttemptOutcome, BuyerAnswer, OrderAttempt, attempts};
use super::pass::{Load, Pass, Variant};
use super::report::Figures;
use super::stage::{QUIET, RunItem, ServiceStage};
use super::strike::{Struck, sell_and_strike, serve_each};
use super::watch::{DelayTarget, Delays, Seen};

/// The gate is held until each order was answered, or waits for it; or nothing happens for so long;
/// for this time at most.
const GATE_QUIET: Duration = Duration::from_millis(500);
const GATE_TIMEOUT: Duration = Duration::from_secs(5);
const GATE_INTERVAL: Duration = Duration::from_millis(10);
/// At least so long, if orders are to give up waiting.
pub(super) const GATE_HELD: Duration = Duration::from_secs(2);
/// A request whose answer is not awaited any more may be at work without a statement: a finding
/// must hold after this time, too.
const ABANDONED: Duration = Duration::from_secs(3);

/// One run of a pass.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) figures: Figures,
    pub(super) item: RunItem,
    pub(super) outcomes: Vec<AttemptOutcome>,
    pub(super) seen: Vec<Seen>,
    /// To Redis.
    pub(super) commands: Vec<Seen>,
    /// The first time that it struck at a statement.
    pub(super) struck: Option<Struck>,
    /// Number of times that its fault struck.
    pub(super) hits: u32,
    /// The gate was held for so long, and each order was over by then.
    pub(super) over_after: Option<Duration>,
}

impl Run {
    /// Returns why it shows nothing: no unit was sold, and nothing was found.
    pub(super) fn nothing_sold(&self) -> Option<Message> {
        let Figures { sold, books_sold, error, .. } = &self.figures;
        if *sold > 0 || *books_sold > 0 || !self.figures.found().is_empty() {
            return None;
        }
        Some(match (error, self.over_after) {
            (Some(error), Some(held)) => {
                message!("service-why-gave-up", ms = held.as_millis(), error)
            }
            (Some(error), None) => message!("service-why-nothing-sold", error),
            (None, _) => message!("service-why-all-sold-out"),
        })
    }
}

/// Sells a new item under a pass, and balances the books.
pub(super) async fn run_once(
    stage: &mut ServiceStage<'_>,
    pass: Pass,
    load: Load,
    variant: Variant,
    seed: u64,
) -> anyhow::Result<Run> {
    let (item, attempts) = prepare(stage, pass, load, seed).await?;
    stage.buyers.answer_timeout = stage.file.answer_timeout(pass);
    stage.watch.begin(match pass {
        Pass::Stretch => Some(Delays::new(DelayTarget::Answers, seed, None)),
        Pass::SlowCommit => {
            Some(Delays::new(DelayTarget::Commits, seed, stage.file.beyond_lease()))
        }
        _ => None,
    });
    let (mut struck, mut over_after) = (None, None);
    let (outcomes, hits) = match (pass, variant) {
        (Pass::Gate, _) => {
            let (outcomes, hits, gave_up) = sell_at_gate(stage, attempts, &item, variant).await?;
            over_after = gave_up;
            (outcomes, hits)
        }
        (_, Variant::Aimed(aim)) => {
            let selling = sell_and_strike(stage, pass, aim, (attempts, load), &item);
            let (outcomes, all_struck) = selling.await?;
            struck = all_struck.first().copied();
            (outcomes, all_struck.len())
        }
        _ => {
            let outcomes = stage.buyers.order(pass, attempts, load.buyers, &item.values).await;
            let hits = match pass {
                Pass::LostAnswer => stage.buyers.cuts.load(Ordering::Relaxed),
                Pass::SlowCommit => stage.watch.delayed(),
                _ => 1,
            };
            (outcomes, hits)
        }
    };
    let figures = balance(stage, pass, &item, load, &outcomes, QUIET).await?;
    if pass.cuts_connections() {
        // Some services never work again, and some end later: the next run has others.
        for instance in &mut stage.instances {
            instance.kill().await;
            instance.start_again(&stage.file.service.ready).await?;
        }
    }
    let hits = u32::try_from(hits)?;
    let seen = stage.watch.seen();
    let commands = stage.watch.commands();
    Ok(Run { figures, item, outcomes, seen, commands, struck, hits, over_after })
}

/// Makes a new item, and the attempts to buy it, up to their orders.
pub(super) async fn prepare(
    stage: &mut ServiceStage<'_>,
    pass: Pass,
    load: Load,
    seed: u64,
) -> anyhow::Result<(RunItem, Vec<OrderAttempt>)> {
    let item = stage.make_item(load.units).await?;
    // Another run has other keys.
    let run_seed = seed.wrapping_add(u64::from(stage.items) << u32::BITS);
    let mut attempts = attempts(load, stage.instances.len(), run_seed);
    if load.attempts <= 2 {
        // Of a pair, each one has an instance for itself, as far as there are two.
        let instances = stage.instances.len();
        attempts.iter_mut().for_each(|it| it.instance = (it.buyer as usize - 1) % instances);
    }
    serve_each(pass, &mut attempts, stage.instances.len());
    stage.buyers.prepare(&attempts, &item.id).await?;
    Ok((item, attempts))
}

/// Balances the books of an item against the answers to its buyers, once the service has been
/// quiet for a while.
pub(super) async fn balance(
    stage: &mut ServiceStage<'_>,
    pass: Pass,
    item: &RunItem,
    load: Load,
    outcomes: &[AttemptOutcome],
    quiet: Duration,
) -> anyhow::Result<Figures> {
    stage.wait_quiet(quiet).await;
    let figures = compare(stage, pass, item, load, outcomes).await?;
    if figures.found().is_empty() {
        return Ok(figures);
    }

    // It must be there still when nothing can change any more.
    let is_given_up = |it: &Answered| matches!(it.answer, BuyerAnswer::Unknown(_));
    if outcomes.iter().any(|outcome| outcome.answers.iter().any(is_given_up)) {
        sleep(ABANDONED).await;
    }
    stage.wait_quiet(QUIET).await;
    compare(stage, pass, item, load, outcomes).await
}

async fn compare(
    stage: &mut ServiceStage<'_>,
    pass: Pass,
    item: &RunItem,
    load: Load,
    outcomes: &[AttemptOutcome],
) -> anyhow::Result<Figures> {
    for instance in &mut stage.instances {
        // Some end when they are struck.
        match pass.is_aimed() {
            true => instance.revive(&stage.file.service.ready).await?,
            false => instance.check_running().await?,
        }
    }
    // Otherwise orders that no buyer has placed would be sound.
    if let Some(program) = &stage.buyers.program {
        program.check_running()?;
    }
    let books = stage.books(item).await?;
    Ok(figures(load.units, outcomes, &books))
}

/// Locks the row of the item until all orders wait: plain reads pass by then, and writes wait.
/// Returns what became of them, whether any has waited, and after what time all were over.
async fn sell_at_gate(
    stage: &mut ServiceStage<'_>,
    attempts: Vec<OrderAttempt>,
    item: &RunItem,
    variant: Variant,
) -> anyhow::Result<(Vec<AttemptOutcome>, usize, Option<Duration>)> {
    let gate = stage.lock_row(item).await?;
    let database = stage.database.as_mut().context("there is no database")?;
    let (buyers, watch) = (&stage.buyers, &stage.watch);
    let lease = stage.file.beyond_lease().unwrap_or_default();
    let least = if variant == Variant::Held { lease.max(GATE_HELD) } else { lease };
    let wanted = attempts.len();
    let opening = async {
        let since = Instant::now();
        let mut waits = GateArrivals::default();
        while since.elapsed() < GATE_TIMEOUT.max(least) {
            sleep(GATE_INTERVAL).await;
            // First: of those that are seen to wait after it, none has ended.
            let ended = buyers.ended.load(Ordering::Relaxed);
            let all = waits.note(ended, database.waiting().await?) >= wanted;
            let is_quiet = since.elapsed().min(watch.quiet_for()) > GATE_QUIET;
            if waits.ended == wanted || ((all || is_quiet) && since.elapsed() >= least) {
                break;
            }
        }
        let over_after = (waits.ended == wanted).then(|| since.elapsed());
        // Those that wait go on.
        gate.close().await?;
        anyhow::Ok((usize::from(waits.has_any), over_after))
    };

    let selling = buyers.order(Pass::Gate, attempts, wanted, &item.values);
    let (outcomes, opened) = join(selling, opening).await;
    let (waited, over_after) = opened?;
    Ok((outcomes, waited, over_after))
}

/// The orders that have come to the gate since it was shut. One that gives up soon and tries again
/// is seen to wait only now and then.
#[derive(Debug, Default)]
struct GateArrivals {
    ended: usize,
    /// The server's processes that were seen to wait since an order has last ended.
    processes: HashSet<i32>,
    has_any: bool,
}

impl GateArrivals {
    /// Returns how many orders have ended, or have waited so far.
    fn note(&mut self, ended: usize, waiting: Vec<i32>) -> usize {
        // That one may be among them. Those that go on trying are seen again.
        if ended > self.ended {
            self.processes.clear();
        }
        self.ended = ended;
        self.has_any |= !waiting.is_empty();
        self.processes.extend(waiting);
        ended + self.processes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_the_gate_outlasts_have_given_up() {
        let why = |over_after| {
            let error = Some("status 503".to_owned());
            let figures = Figures { error, ..Figures::default() };
            let run = Run { figures, over_after, ..Run::default() };
            run.nothing_sold().unwrap().english()
        };
        assert_eq!(why(None), "nothing was sold: status 503");
        let held = why(Some(Duration::from_millis(20)));
        assert!(held.contains("for 20 ms, and each order gave up meanwhile: status 503"), "{held}");
    }

    #[test]
    fn orders_wait_at_different_times() {
        let mut waits = GateArrivals::default();
        let counts = [(0, vec![1, 2]), (0, vec![3]), (0, vec![1]), (1, vec![]), (1, vec![3])];
        let counts = counts.map(|(ended, waiting)| waits.note(ended, waiting));
        assert_eq!((counts, waits.has_any), ([2, 3, 3, 1, 2], true));
    }
}
