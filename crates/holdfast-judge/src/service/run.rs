//! A judgement of a service from start to end: the runs of each pass, and their reports.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use futures_util::future::join;
use holdfast_base::message;
use holdfast_base::messages::Message;
use holdfast_base::output::print_progress;
use holdfast_lock::clock::monotonic_us;
use holdfast_services::TempFolder;
use sqlx::Connection as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::balances::figures;
use super::buyers::{Attempt, Outcome, attempts};
use super::database::Database;
use super::evidence;
use super::file::{Order, ServiceFile};
use super::instances::Instance;
use super::pass::{Load, Pass};
use super::report::{Evidence, Figures, Imbalance, PassReport, ServiceJudgement, ServiceName};
use super::stage::{Item, Stage};
use super::watch::{Aim, Seen, Strike};
use crate::demands::Judged as _;
use crate::processes::{adopt_orphans, end_orphans};

/// The gate is held until each order was answered, or waits for it; or nothing happens for so long;
/// for this time at most.
const GATE_QUIET: Duration = Duration::from_millis(500);
const GATE_TIMEOUT: Duration = Duration::from_secs(5);
const GATE_INTERVAL: Duration = Duration::from_millis(10);
/// Runs with a finding after which a pass is not repeated any more.
const CLEAR_FINDINGS: u32 = 3;

/// The options of a judgement.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) passes: Vec<Pass>,
    pub(super) seed: u64,
    pub(super) repeat: u32,
    /// RFC 3339, UTC.
    pub(super) started_at: String,
}

/// One run of a pass.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) figures: Figures,
    pub(super) item: Item,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) seen: Vec<Seen>,
    pub(super) struck: Option<Struck>,
    /// How often its fault struck.
    hits: u32,
}

/// An instance that was stopped or killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Struck {
    pub(super) instance: usize,
    /// Microseconds of the machine's monotonic clock.
    pub(super) at_us: u64,
}

/// Runs all passes. `progress` is called with the number of the pass, and its name.
pub(super) async fn run(
    file: &ServiceFile,
    plan: &Plan,
    folder: &TempFolder,
    progress: impl FnMut(usize, &str),
    signals: &mut mpsc::UnboundedReceiver<&'static str>,
) -> anyhow::Result<ServiceJudgement> {
    adopt_orphans();
    let mut judge = Judge::new(Stage::new(file), plan);
    // A signal waits for it: of a database that is half made nobody would know.
    let passes = match judge.stage.make_database().await {
        Ok(()) => tokio::select! {
            passes = judge.run_all(folder, progress) => passes,
            Some(name) = signals.recv() => Err(anyhow!(name)),
        },
        Err(error) => Err(error),
    };

    // Before an error is returned: every way ends what was started.
    let database = judge.stage.end().await;
    end_orphans(database.as_ref().and_then(Database::pid)).await;
    if let Some(database) = database {
        database.end().await;
    }

    let passes = passes?;
    let attached = file.service.urls.len();
    let instances = if file.is_attached() { attached } else { file.service.instances };
    let mut judgement = ServiceJudgement {
        service: ServiceName { name: file.name.clone(), instances },
        sound: passes.iter().all(|pass| pass.lost_in == 0),
        passes,
        seed: plan.seed,
        started_at: plan.started_at.clone(),
    };
    judgement.sound &= judgement.undecided().is_none();
    Ok(judgement)
}

struct Judge<'a> {
    stage: Stage<'a>,
    plan: &'a Plan,
    /// The patterns that were shown: another pass finds the same mistake.
    shown: BTreeSet<&'static str>,
    /// It sells too much to one buyer after the other.
    is_unchecked: bool,
}

impl<'a> Judge<'a> {
    fn new(stage: Stage<'a>, plan: &'a Plan) -> Self {
        Self { stage, plan, shown: BTreeSet::new(), is_unchecked: false }
    }

    async fn run_all(
        &mut self,
        folder: &TempFolder,
        mut progress: impl FnMut(usize, &str),
    ) -> anyhow::Result<Vec<PassReport>> {
        print_progress("starting the service …");
        self.stage.set_up(folder).await?;
        let first = self.stage.make_item(1).await?;
        self.stage.check_opening(&first, 1).await?;
        self.stage.learn(&first).await?;
        self.stage.try_gate(&first).await;

        let mut reports = Vec::new();
        for (number, pass) in self.plan.passes.iter().enumerate() {
            let report = Box::pin(self.run_pass(*pass, |run| progress(number, run))).await;
            let report = report.with_context(|| format!("in the pass `{}`", pass.name()))?;
            if *pass == Pass::Control && report.figures.sold == 0 {
                let error = report.figures.error;
                let error = error.unwrap_or_else(|| "each answer was *sold out*".to_owned());
                let Order { sold, sold_out, .. } = &self.stage.file.order;
                let said = self.stage.instances.first().and_then(Instance::last_words);
                bail!(
                    "the service sold nothing to one buyer after the other, so it can't be \
                     judged: {error}. [order] has sold = {sold:?}, sold_out = {sold_out:?}. {}",
                    said.unwrap_or_default()
                );
            }
            let Figures { sold, lost, books_sold, .. } = report.figures;
            ensure!(
                *pass != Pass::Control || books_sold > 0,
                "[books] sold found none of the {sold} units that were answered *sold*, one after \
                 the other: does its query count the orders of `{{item}}`?"
            );
            ensure!(
                *pass != Pass::Control || lost < sold.cast_signed(),
                "[books] by_key returned none of the {sold} keys that were answered *sold*: its \
                 first column must be the {{key}} of the order, as it was sent"
            );
            reports.push(report);
        }
        Ok(reports)
    }

    /// Runs a pass as often as asked for, and shows two requests of what it finds.
    async fn run_pass(
        &mut self,
        pass: Pass,
        mut progress: impl FnMut(&str),
    ) -> anyhow::Result<PassReport> {
        let mut report = PassReport { name: pass.name().to_owned(), ..PassReport::default() };
        if let Some(why) = why_not(&self.stage, pass) {
            return Ok(not_run(report, why));
        }

        let Plan { repeat, seed, .. } = self.plan;
        let mut found_at = None;
        for number in 0..*repeat {
            if report.lost_in >= CLEAR_FINDINGS && number > 0 {
                break;
            }
            for aim in pass.aims() {
                match *repeat {
                    1 => progress(pass.name()),
                    _ => progress(&format!("{}, run {} of {repeat}", pass.name(), number + 1)),
                }
                let seed = seed.wrapping_add(u64::from(number));
                let run = run_once(&mut self.stage, pass, pass.load(), aim, seed).await?;
                let is_found = !run.figures.found().is_empty();
                report.runs += 1;
                report.hits += run.hits;
                report.lost_in += u32::from(is_found);
                // The first one that was struck, and before all the first one with a finding.
                let is_first_hit = report.hits > 0 && report.hits == run.hits;
                let is_first = report.lost_in == 0 && (report.runs == 1 || is_first_hit);
                if is_first || (is_found && report.lost_in == 1) {
                    report.figures = run.figures;
                }
                if is_found && found_at.is_none() {
                    found_at = Some((seed, aim));
                }
            }
        }

        report.ran = report.hits > 0 || report.lost_in > 0;
        if !report.ran {
            let tables = self.stage.learned.tables.join(", ");
            let why = match pass {
                Pass::Gate => message!("service-why-no-waiter"),
                _ => message!("service-why-no-strike", tables),
            };
            return Ok(not_run(report, why));
        }
        self.is_unchecked |= pass == Pass::Control && report.figures.oversold > 0;
        if let Some((seed, aim)) = found_at {
            report.evidence = self.show(pass, &report.figures, seed, aim).await?;
        }
        Ok(report)
    }

    /// Shows with two requests what a pass has found, unless another one has shown it.
    async fn show(
        &mut self,
        pass: Pass,
        figures: &Figures,
        seed: u64,
        aim: Option<Aim>,
    ) -> anyhow::Result<Vec<Evidence>> {
        let found = figures.found();
        // It needs no other request to sell too much.
        if self.is_unchecked && pass != Pass::Control && found == [Imbalance::Oversold] {
            return Ok(Vec::new());
        }

        // What the gate shows is no matter of the fault. Only a key that is sold twice needs its
        // retry.
        let candidates = match pass {
            Pass::Control => [Pass::Control; 2],
            _ if found.contains(&Imbalance::Doubled) => [pass; 2],
            // Alone, two requests seldom meet.
            Pass::None | Pass::Gate => [Pass::Gate, Pass::Stretch],
            _ => [Pass::Gate, pass],
        };
        for candidate in candidates {
            if why_not(&self.stage, candidate).is_some() {
                continue;
            }
            let load = evidence::load(candidate, &found);
            let aim = aim.filter(|_| candidate == pass);
            let run = run_once(&mut self.stage, candidate, load, aim, seed).await?;
            if let Some(evidence) = evidence::of(&self.stage, candidate, &found, &run) {
                let is_new = self.shown.insert(evidence.pattern.name());
                return Ok(is_new.then_some(evidence).into_iter().collect());
            }
        }
        Ok(Vec::new())
    }
}

fn not_run(report: PassReport, why: Message) -> PassReport {
    PassReport {
        name: report.name,
        why_not: Some(why.english()),
        why_not_message: Some(why),
        ..PassReport::default()
    }
}

/// Returns why a pass can't run.
fn why_not(stage: &Stage<'_>, pass: Pass) -> Option<Message> {
    let file = stage.file;
    match pass {
        Pass::Retry | Pass::LostAnswer if !file.has_key() => Some(message!("service-why-no-key")),
        Pass::LostAnswer if !file.order.command.is_empty() => Some(message!("service-why-program")),
        Pass::Stretch | Pass::Pause | Pass::Kill if file.is_attached() => {
            Some(message!("service-why-attached"))
        }
        Pass::Gate | Pass::Stretch | Pass::Pause | Pass::Kill
            if stage.learned.tables.is_empty() =>
        {
            Some(message!("service-why-no-table"))
        }
        Pass::Gate => stage.no_gate.clone(),
        Pass::Control
        | Pass::None
        | Pass::Retry
        | Pass::Stretch
        | Pass::LostAnswer
        | Pass::Pause
        | Pass::Kill => None,
    }
}

/// Sells a new item under a pass, and balances the books.
pub(super) async fn run_once(
    stage: &mut Stage<'_>,
    pass: Pass,
    load: Load,
    aim: Option<Aim>,
    seed: u64,
) -> anyhow::Result<Run> {
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
    stage.wait_quiet().await;
    for instance in &mut stage.instances {
        instance.check_running().await?;
    }

    let books = stage.books(&item).await?;
    let figures = figures(load.units, &outcomes, &books);
    Ok(Run { figures, item, outcomes, seen: stage.watch.seen(), struck, hits })
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
