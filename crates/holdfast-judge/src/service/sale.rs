//! One run: a new item is sold under a pass, and the books are balanced.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join;
use holdfast_lock::clock::monotonic_us;
use sqlx::Connection as _;
use tokio::time::{Instant, sleep};

use super::balances::figures;
use super::buyers::{Answer, Answered, Attempt, Outcome, attempts};
use super::pass::{Load, Pass};
use super::report::Figures;
use super::stage::{Item, QUIET, Stage};
use super::watch::{Aim, Seen, Strike};

/// The gate is held until each order was answered, or waits for it; or nothing happens for so long;
/// for this time at most.
const GATE_QUIET: Duration = Duration::from_millis(500);
const GATE_TIMEOUT: Duration = Duration::from_secs(5);
const GATE_INTERVAL: Duration = Duration::from_millis(10);
/// A request whose answer nobody waits for may be at work without a statement: what was found must
/// be there after this time, too.
const ABANDONED: Duration = Duration::from_secs(3);

/// One run of a pass.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) figures: Figures,
    pub(super) item: Item,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) seen: Vec<Seen>,
    pub(super) struck: Option<Struck>,
    /// How often its fault struck.
    pub(super) hits: u32,
}

/// An instance that was stopped or killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Struck {
    pub(super) instance: usize,
    /// Microseconds of the machine's monotonic clock.
    pub(super) at_us: u64,
}

/// Sells a new item under a pass, and balances the books.
pub(super) async fn run_once(
    stage: &mut Stage<'_>,
    pass: Pass,
    load: Load,
    aim: Option<Aim>,
    seed: u64,
) -> anyhow::Result<Run> {
    let (item, attempts) = prepare(stage, load, seed).await?;
    stage.buyers.answer_timeout = stage.file.answer_timeout(pass);
    stage.watch.begin((pass == Pass::Stretch).then_some(seed));
    let mut struck = None;
    let (outcomes, hits) = match (pass, aim) {
        (Pass::Gate, _) => sell_at_gate(stage, attempts, &item).await?,
        (_, Some(aim)) => {
            let selling = sell_and_strike(stage, pass, aim, (attempts, load), &item);
            let outcomes;
            (outcomes, struck) = selling.await?;
            (outcomes, u32::from(struck.is_some()))
        }
        _ => {
            let outcomes = stage.buyers.order(pass, attempts, load.buyers, &item.values).await;
            let cuts = stage.buyers.cuts.load(Ordering::Relaxed);
            let hits = if pass == Pass::LostAnswer { u32::try_from(cuts)? } else { 1 };
            (outcomes, hits)
        }
    };
    stage.wait_quiet(QUIET).await;
    let mut figures = balance(stage, &item, load, &outcomes).await?;
    let is_given_up = |it: &Answered| matches!(it.answer, Answer::Unknown(_));
    let is_found = !figures.found().is_empty();
    if is_found && outcomes.iter().any(|outcome| outcome.answers.iter().any(is_given_up)) {
        sleep(ABANDONED).await;
        stage.wait_quiet(QUIET).await;
        figures = balance(stage, &item, load, &outcomes).await?;
    }
    Ok(Run { figures, item, outcomes, seen: stage.watch.seen(), struck, hits })
}

/// Makes a new item, and the attempts to buy it, up to their orders.
pub(super) async fn prepare(
    stage: &mut Stage<'_>,
    load: Load,
    seed: u64,
) -> anyhow::Result<(Item, Vec<Attempt>)> {
    let item = stage.make_item(load.units).await?;
    // Another run has other keys.
    let run_seed = seed.wrapping_add(u64::from(stage.items) << u32::BITS);
    let mut attempts = attempts(load, stage.instances.len(), run_seed);
    if load.attempts <= 2 {
        // Of a pair, each one has an instance for itself, as far as there are two.
        let instances = stage.instances.len();
        attempts.iter_mut().for_each(|it| it.instance = (it.buyer as usize - 1) % instances);
    }
    stage.buyers.prepare(&attempts, &item.id).await?;
    Ok((item, attempts))
}

/// Balances the books of an item against what its buyers were told.
pub(super) async fn balance(
    stage: &mut Stage<'_>,
    item: &Item,
    load: Load,
    outcomes: &[Outcome],
) -> anyhow::Result<Figures> {
    for instance in &mut stage.instances {
        instance.check_running().await?;
    }
    // Otherwise orders that nobody has placed would be sound.
    if let Some(program) = &stage.buyers.program {
        program.check_running()?;
    }
    let books = stage.books(item).await?;
    Ok(figures(load.units, outcomes, &books))
}

/// Locks the row of the item until all orders wait: plain reads pass by then, and writes wait.
async fn sell_at_gate(
    stage: &mut Stage<'_>,
    attempts: Vec<Attempt>,
    item: &Item,
) -> anyhow::Result<(Vec<Outcome>, u32)> {
    let gate = stage.lock_row(item).await?;
    let database = stage.database.as_mut().context("there is no database")?;
    let (buyers, watch) = (&stage.buyers, &stage.watch);
    let lease = Duration::from_millis(stage.file.service.lease_ms.unwrap_or_default()).mul_f64(1.5);
    let wanted = attempts.len();
    let opening = async {
        let since = Instant::now();
        let mut waited = 0;
        while since.elapsed() < GATE_TIMEOUT.max(lease) {
            sleep(GATE_INTERVAL).await;
            let waiting = database.count_waiting().await?;
            waited = waited.max(waiting);
            let all = buyers.ended.load(Ordering::Relaxed) + waiting >= wanted;
            let is_quiet = since.elapsed().min(watch.quiet_for()) > GATE_QUIET;
            if (all || is_quiet) && since.elapsed() >= lease {
                break;
            }
        }
        // Those that wait go on.
        gate.close().await?;
        anyhow::Ok(u32::from(waited > 0))
    };

    let selling = buyers.order(Pass::Gate, attempts, wanted, &item.values);
    let (outcomes, waited) = join(selling, opening).await;
    Ok((outcomes, waited?))
}

/// Stops or kills the instance whose statement was just answered.
async fn sell_and_strike(
    stage: &mut Stage<'_>,
    pass: Pass,
    aim: Aim,
    (attempts, load): (Vec<Attempt>, Load),
    item: &Item,
) -> anyhow::Result<(Vec<Outcome>, Option<Struck>)> {
    // Before the first order: a sell-out lasts a tenth of a second.
    let strike = stage.watch.arm(aim);
    let (file, buyers, watch) = (stage.file, &stage.buyers, &stage.watch);
    let selling = async {
        let outcomes = buyers.order(pass, attempts, load.buyers, &item.values).await;
        watch.disarm();
        outcomes
    };

    let instances = &mut stage.instances;
    let striking = async {
        let Ok(Strike { instance, go }) = strike.await else { return anyhow::Ok(None) };
        let at = Struck { instance, at_us: monotonic_us() };
        let struck = &mut instances[instance];
        if pass == Pass::Kill {
            struck.kill().await;
            let _ = go.send(false);
            struck.start_again(&file.service.ready).await?;
            return Ok(Some(at));
        }
        struck.pause().await?;
        let _ = go.send(true);
        sleep(file.pause()).await;
        struck.resume();
        Ok(Some(at))
    };
    let (outcomes, struck) = join(selling, striking).await;
    Ok((outcomes, struck?))
}
