//! The pass `interleavings`: two requests for one unit, over the possible orders of their
//! statements and commands to Redis. Finds one under which a balance is off, makes it short, and
//! runs it again.
//!
//! Not seen are races within one statement, and with what is in neither Postgres nor Redis; for
//! these there are `none` and `gate`.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::{join, join_all};
use holdfast_base::output::print_progress;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::pass::{Load, Pass};
use super::recording::ScheduleRecording;
use super::report::Figures;
use super::sale::{Run, balance, prepare};
use super::schedule::Schedule;
use super::sql::{Access, access};
use super::stage::ServiceStage;
use super::steps::Passed;
use super::watch::Watch;

/// Both requests were answered, and no statement came for so long: the books can be read.
const QUIET: Duration = Duration::from_millis(20);
/// Time for which the judge watches what the service sends by itself.
const IDLE: Duration = Duration::from_secs(1);
/// So often a replay may meet other statements.
const REPLAY_ATTEMPTS: u32 = 3;
/// Time to make a schedule shorter.
const SHORTENING: Duration = Duration::from_secs(10);

/// The result of a search.
#[derive(Debug)]
pub(super) struct Search {
    /// Schedules that were tried, and those of them that found something, or came to their end and
    /// sold something.
    pub(super) tried: u32,
    pub(super) finished: u32,
    /// One of these has a switch, or has found something: others say nothing of two orders at once.
    pub(super) has_run: bool,
    /// Those with at most two switches for which there was no time.
    pub(super) left: usize,
    /// The run of the shortest schedule that has found something; else that of the last one.
    pub(super) run: Run,
    pub(super) found: Option<ScheduleRecording>,
}

impl Search {
    /// Says which schedules showed nothing, how many were not tried, and what was not scheduled.
    pub(super) fn tell_gaps(&self, watch: &Watch) {
        for why in watch.unread.lock().iter() {
            print_progress(&format!(
                "interleavings: what the service sends to Redis after {why}, on the same \
                 connection, is not scheduled"
            ));
        }
        let Self { tried, finished, left, .. } = self;
        if finished < tried {
            print_progress(&format!(
                "interleavings: {} of {tried} schedules showed nothing: neither request went on, \
                 or both failed",
                tried - finished
            ));
        }
        if *left > 0 {
            print_progress(&format!(
                "interleavings: {left} schedules of at most two switches were not tried: --budget \
                 gives more time"
            ));
        }
    }
}

/// A run under a schedule.
#[derive(Debug)]
pub(super) struct Tried {
    schedule: Schedule,
    run: Run,
    passed: Vec<Passed>,
    is_finished: bool,
}

impl Tried {
    fn has_found(&self) -> bool {
        !self.run.figures.found().is_empty()
    }

    /// Returns whether it found anything, or came to its end and sold something.
    fn shows(&self) -> bool {
        let Figures { sold, books_sold, .. } = self.run.figures;
        self.has_found() || (self.is_finished && (sold > 0 || books_sold > 0))
    }

    /// Returns whether it shows what two orders at once do, or has found something.
    fn shows_switch(&self) -> bool {
        self.has_found() || (self.shows() && !self.schedule.switches.is_empty())
    }
}

/// Tries schedules, until one finds something or the time is over; that one is made shorter.
pub(super) async fn search(
    stage: &mut ServiceStage<'_>,
    budget: Duration,
    seed: u64,
    mut progress: impl FnMut(u32),
) -> anyhow::Result<Search> {
    // The first request sends what there is to schedule.
    let mut last = warm_up(stage, seed).await?;
    let until = Instant::now() + budget;
    let (statements, reads) = learn(stage, &last.passed);
    if statements == 0 && !last.has_found() {
        // Nothing of it can be held: no schedule would be another one.
        let (run, found) = (last.run, None);
        return Ok(Search { tried: 1, finished: 0, has_run: false, left: 0, run, found });
    }

    let mut random = StdRng::seed_from_u64(seed);
    let all = Schedule::systematic(statements, &reads, &mut random);
    let mut systematic = all.iter().skip(1);
    let (mut tried, mut finished) = (1, u32::from(last.shows()));
    let mut has_run = last.shows_switch();
    while !last.has_found() && Instant::now() < until {
        let next = systematic.next().cloned();
        let schedule = next.unwrap_or_else(|| Schedule::random(statements, &mut random));
        progress(tried);
        last = run_scheduled(stage, schedule, seed).await?;
        tried += 1;
        finished += u32::from(last.shows());
        has_run |= last.shows_switch();
    }

    if !last.has_found() {
        let left = systematic.len();
        return Ok(Search { tried, finished, has_run, left, run: last.run, found: None });
    }
    let Tried { schedule, run, passed, is_finished } = shorten(stage, last, seed).await;
    let service = stage.file.name.clone();
    let found = is_finished.then_some(ScheduleRecording { service, schedule, statements: passed });
    Ok(Search { tried, finished, has_run, left: 0, run, found })
}

/// Watches what the service sends without an order, and lets it place two, one after the other:
/// the first ones may fill caches. Returns the run of two more, unless the first ones have found
/// something.
pub(super) async fn warm_up(stage: &mut ServiceStage<'_>, seed: u64) -> anyhow::Result<Tried> {
    stage.watch.steps.begin_idle();
    sleep(IDLE).await;
    stage.watch.steps.end();

    let serial = |first| Schedule { first, switches: Vec::new(), patient: false };
    let first = run_scheduled(stage, serial(1), seed).await?;
    if first.has_found() {
        return Ok(first);
    }
    run_scheduled(stage, serial(0), seed).await
}

/// Returns how many statements the first request has sent, and the numbers of those that read the
/// stock.
fn learn(stage: &ServiceStage<'_>, passed: &[Passed]) -> (usize, Vec<usize>) {
    let tables = &stage.learned.tables;
    let of_first = || passed.iter().filter(|passed| passed.request == 0);
    let is_read = |passed: &Passed| access(&passed.statement, tables) == Some(Access::Read);
    let reads = (1..).zip(of_first()).filter(|(_, passed)| is_read(passed));
    (of_first().count(), reads.map(|(number, _)| number).collect())
}

/// Takes switches away while the schedule still finds something.
async fn shorten(stage: &mut ServiceStage<'_>, mut best: Tried, seed: u64) -> Tried {
    let until = Instant::now() + SHORTENING;
    let mut candidates = best.schedule.shorter().into_iter();
    while let Some(schedule) = candidates.next()
        && Instant::now() < until
    {
        // The finding stays without it.
        let Ok(tried) = run_scheduled(stage, schedule, seed).await else { break };
        if tried.is_finished && tried.has_found() {
            candidates = tried.schedule.shorter().into_iter();
            best = tried;
        }
    }
    best
}

/// Runs a recording again. Fails if the service sends other statements now, each time: once may be
/// chance, as with a pool that opens a connection.
pub(super) async fn replay(
    stage: &mut ServiceStage<'_>,
    recording: &ScheduleRecording,
    seed: u64,
) -> anyhow::Result<Run> {
    let mut attempts = 1;
    loop {
        let tried = run_scheduled(stage, recording.schedule.clone(), seed).await?;
        match recording.check(&tried.passed) {
            Ok(()) => return Ok(tried.run),
            Err(error) if attempts == REPLAY_ATTEMPTS => return Err(error),
            Err(_) => attempts += 1,
        }
    }
}

/// Sells one unit to two requests, whose statements pass as the schedule says.
async fn run_scheduled(
    stage: &mut ServiceStage<'_>,
    schedule: Schedule,
    seed: u64,
) -> anyhow::Result<Tried> {
    const PAIR: Load = Load { units: 1, attempts: 2, buyers: 2 };
    let (item, attempts) = prepare(stage, Pass::Interleavings, PAIR, seed).await?;
    stage.buyers.answer_timeout = stage.file.answer_timeout(Pass::Interleavings);
    stage.watch.begin(None);
    let (buyers, watch) = (&stage.buyers, &stage.watch);
    let database = stage.database.as_mut().context("there is no database")?;
    // Nothing fails from here to its end: statements that are held go on only then.
    watch.steps.begin();

    let ordering = attempts.into_iter().map(async |attempt| {
        let request = attempt.instance;
        let outcomes = buyers.order(Pass::Interleavings, vec![attempt], 1, &item.values).await;
        watch.steps.end_request(request);
        outcomes
    });
    let following = async {
        let are_waiting = async |backends: Vec<i32>| database.is_any_waiting(&backends).await;
        let followed = watch.steps.follow(&schedule, are_waiting).await;
        // What is held still goes on.
        (followed, watch.steps.end())
    };
    let (outcomes, (followed, passed)) = join(join_all(ordering), following).await;
    let outcomes = outcomes.concat();
    let is_finished = followed?;

    let figures = balance(stage, Pass::Interleavings, &item, PAIR, &outcomes, QUIET).await?;
    let seen = stage.watch.seen();
    let commands = stage.watch.commands();
    let (struck, over_after) = (None, None);
    let run = Run { figures, item, outcomes, seen, commands, struck, hits: 1, over_after };
    Ok(Tried { schedule, run, passed, is_finished })
}
