//! Benchmark: the cost of each strategy, side by side on one machine.
//!
//! Starts a shop of its own ([`harness`]): a private Postgres that syncs every commit, Redis, and
//! two replicas per pool size. Runs every strategy on one hot item, and what else the figures need
//! ([`runs`]), in rounds of alternating order, so that a machine that slows down affects all alike.
//! Empties the shop before each run and audits the books after it: a strategy that fails one audit
//! has no figures, only the number of oversold units. Compares runs within a round; reports the
//! median over the rounds.
//!
//! The figures do not say how fast a shop is: the clients run on the same cores, so only ratios
//! carry over. Tests: `tests/alone/bench.rs`.

mod chart;
mod goals;
mod harness;
mod machine;
mod measurements;
mod results;
mod runs;
mod table;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use crate::config::BenchArgs;
use crate::embedded::{TempShop, TempShopOptions};
use crate::output;
use crate::shop::Strategy;
use crate::shop::strategy::STRATEGIES;
use crate::signals;
use harness::Harness;
use measurements::Measurements;
use results::{Method, Results};
use runs::{BATCHED, BenchRun, NO_STRATEGY};

/// Default selection; the other strategies cost the same as one of these, or are slow by design.
const DEFAULT_STRATEGIES: [&str; 9] =
    ["none", "local", "owner", "watchdog", "redlock", "fenced", "row-lock", "atomic", BATCHED];
/// Length of a calibration run, as a fraction of a run.
const CALIBRATION_PART: f64 = 0.2;
const REDLOCK_NODES: u16 = 3;
/// Approximate time to empty and audit the shop, per run.
const OVERHEAD_PER_RUN: Duration = Duration::from_secs(1);

pub async fn bench(options: &BenchArgs) -> anyhow::Result<()> {
    let arms = arms(&options.only)?;
    let mut signals = signals::listen()?;
    let pool_sizes =
        options.pool_sizes.iter().flat_map(|size| [*size; harness::REPLICAS]).collect();
    let plan = TempShopOptions { name: "bench", pool_sizes, nodes: REDLOCK_NODES, jobs: false };
    let mut shop = TempShop::start(&plan)?;
    // From here on, every path stops the shop.
    let measured = tokio::select! {
        measured = measure(options, &arms, &mut shop) => measured,
        Some(name) = signals.recv() => Err(anyhow!("{name}; nothing was written")),
    };
    // Stopping has its own time limits; a second ^C does not shorten them.
    shop.stop().await;
    let results = measured?;
    // Printed first, because writing a file may fail.
    output::print(&table::table(&results, options.goals))?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&results)? + "\n";
        std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))?;
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, chart::draw(&results))
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the strategies named in `only`, or the default selection. Fails on an unknown name.
fn arms(only: &[String]) -> anyhow::Result<Vec<&'static Strategy>> {
    if let Some(name) = only.iter().find(|name| Strategy::named(name).is_none()) {
        bail!("there is no strategy “{name}”; the strategies are {}", Strategy::names());
    }
    let is_selected = |name: &str| match only {
        [] => DEFAULT_STRATEGIES.contains(&name),
        only => only.iter().any(|only| only == name),
    };
    Ok(STRATEGIES.iter().filter(|strategy| is_selected(strategy.name)).collect())
}

async fn measure(
    options: &BenchArgs,
    arms: &[&'static Strategy],
    shop: &mut TempShop,
) -> anyhow::Result<Results> {
    let connections = usize::from(options.connections);
    let mut harness = Harness::open(shop, &options.pool_sizes, connections).await?;
    let machine = machine::describe(shop.folder(), &mut harness).await?;
    let names: Vec<&'static str> = arms.iter().map(|arm| arm.name).collect();
    let schedule = runs::schedule(&names, connections);
    let mut pools: BTreeMap<BenchRun, u32> = BTreeMap::new();
    for run in schedule.iter().filter(|run| run.strategy != NO_STRATEGY) {
        let run = run.calibration(connections);
        if let Entry::Vacant(pool) = pools.entry(run) {
            pool.insert(best_pool(options, &mut harness, run).await?);
        }
    }
    let mut data = Measurements::default();
    let length = Duration::from_secs_f64(options.seconds);
    let all = options.rounds * schedule.len() as u32;
    let expected = (length + harness::warm_up(length) + OVERHEAD_PER_RUN) * all;
    eprintln!("{all} runs, about {} s …", expected.as_secs());
    for number in 1..=options.rounds {
        let mut order = schedule.clone();
        if number % 2 == 0 {
            order.reverse();
        }
        for (at, run) in order.iter().enumerate() {
            let pool = pools.get(&run.calibration(connections)).copied();
            let pool = pool.unwrap_or(options.pool_sizes[0]);
            let round = harness.run(*run, pool, length).await?;
            let of = format!("round {number}/{}, {}/{}", options.rounds, at + 1, order.len());
            eprintln!("{of}: {run}: {round}");
            data.0.entry(*run).or_default().push(round);
        }
    }
    let method = Method {
        rounds: options.rounds,
        seconds: options.seconds,
        warm_up_seconds: harness::warm_up(length).as_secs_f64(),
        connections,
        replicas: harness::REPLICAS,
        pool_sizes: options.pool_sizes.clone(),
    };
    Ok(Results::new(machine, method, &data, &pools))
}

/// Returns the pool size with the highest throughput, by a short run with each.
async fn best_pool(
    options: &BenchArgs,
    harness: &mut Harness,
    run: BenchRun,
) -> anyhow::Result<u32> {
    let mut best = (0.0, options.pool_sizes[0]);
    if options.pool_sizes.len() == 1 {
        return Ok(best.1);
    }
    let length = Duration::from_secs_f64((options.seconds * CALIBRATION_PART).max(0.5));
    for size in &options.pool_sizes {
        let round = harness.run(run, *size, length).await?;
        eprintln!("calibrating: {run}: {size} connections to Postgres: {round}");
        if round.per_second > best.0 {
            best = (round.per_second, *size);
        }
    }
    Ok(best.1)
}
