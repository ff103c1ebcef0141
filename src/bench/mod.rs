//! Benchmark: the cost of each strategy, side by side on one machine.
//!
//! Starts a shop of its own ([`harness`]): a private Postgres that syncs every commit, Redis, and
//! four replicas, of which most runs use two. Runs every strategy on one hot item, and what else
//! the goals need ([`runs`]), in rounds of alternating order, so that a machine that slows down
//! affects all alike. Empties the shop before each run and audits the books after it: a strategy
//! that fails one audit has no figures, only the number of oversold units. Compares runs within a
//! round. The [`floor`] is what the write alone costs.
//!
//! On the user's own servers ([`servers`]) it makes and drops a database ([`database`]), needs no
//! right but that, and leaves out what only servers without other users can tell.

mod args;
mod chart;
mod database;
mod floor;
mod goals;
mod harness;
mod requests;
mod results;
mod results_table;
mod runs;
mod servers;

use std::time::Duration;

use anyhow::{anyhow, bail, ensure};

use args::Arm;
pub use args::BenchArgs;
use harness::Harness;
use holdfast_base::output::{self, ResultFile};
use holdfast_base::signals;
use holdfast_shop::Strategy;
use holdfast_shop::strategy::STRATEGIES;
use results::{Method, Results};
use runs::Measurements;
use servers::{Servers, Tenancy};

const OVERHEAD_PER_RUN: Duration = Duration::from_secs(1);

pub(crate) async fn bench(options: &BenchArgs) -> anyhow::Result<()> {
    let mut strategies = strategies(&options.only)?;
    let json = options.json.as_deref().map(ResultFile::open).transpose()?;
    // Of the strategies, which another arm does not measure.
    let svg = options.svg.as_deref().filter(|_| options.arm.is_none());
    let svg = svg.map(ResultFile::open).transpose()?;
    let mut signals = signals::listen()?;
    let mut servers = tokio::select! {
        opened = Servers::open(&options.servers) => opened?,
        Some(name) = signals.recv() => bail!("{name}; the benchmark had not begun"),
    };
    let left_out = leave_out(&mut strategies, &servers)?;

    // From here on, every path stops the servers.
    let measured = match servers.prepare().await {
        Err(error) => Err(error),
        Ok(()) => tokio::select! {
            measured = measure(options, &strategies, &mut servers) => measured,
            Some(name) = signals.recv() => Err(anyhow!("{name}; nothing was written")),
        },
    };
    // Stopping has its own time limits; a second ^C does not shorten them.
    let stopped = servers.stop().await;
    // At once: what follows may fail, too.
    if let Err(left) = &stopped {
        output::report_failure(&format!("{left:#}"));
    }

    let results = Results { left_out, ..measured? };
    // Printed first, because writing a file may fail.
    output::print(&results_table::table(&results, options.goals))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&results)? + "\n"))?;
    }
    if let Some(file) = svg {
        file.write(&chart::draw(&results))?;
    }
    stopped.map_err(|_| anyhow!("the results are complete, but something was not removed"))
}

/// Removes the strategies that these servers do not allow; returns them with the reason. Fails if
/// none is left.
fn leave_out(strategies: &mut Vec<&'static str>, servers: &Servers) -> anyhow::Result<Vec<String>> {
    let mut left_out = Vec::new();
    strategies.retain(|strategy| {
        let obstacle = servers.obstacle(strategy);
        left_out.extend(obstacle.map(|why| format!("{strategy}: {why}")));
        obstacle.is_none()
    });
    ensure!(!strategies.is_empty(), "no strategy is left to measure: {}", left_out.join("; "));
    Ok(left_out)
}

/// Returns the strategies named in `only`, in the order of the table. Fails on an unknown name.
fn strategies(only: &[String]) -> anyhow::Result<Vec<&'static str>> {
    if let Some(name) = only.iter().find(|name| Strategy::named(name).is_none()) {
        bail!("there is no strategy “{name}”; the strategies are {}", Strategy::names());
    }

    let names = STRATEGIES.iter().map(|strategy| strategy.name);
    Ok(names.filter(|name| only.iter().any(|only| only == name)).collect())
}

async fn measure(
    options: &BenchArgs,
    strategies: &[&'static str],
    servers: &mut Servers,
) -> anyhow::Result<Results> {
    let connections = usize::from(options.connections);
    let site = servers.ready().await?;
    let for_goals = site.tenancy == Tenancy::Alone;
    let mut harness = Harness::open(site, connections).await?;
    let machine = harness.describe_machine().await?;

    let schedule = match options.arm {
        Some(Arm::Mixed) => runs::mixed(connections),
        None => runs::schedule(strategies, connections, for_goals),
    };
    let mut data = Measurements::default();
    let length = Duration::from_secs_f64(options.seconds);
    let all = options.rounds * schedule.len() as u32;
    let expected = (length + harness::warm_up(length) + OVERHEAD_PER_RUN) * all;
    output::print_progress(&format!("{all} runs, about {} s …", expected.as_secs()));

    for number in 1..=options.rounds {
        let mut order = schedule.clone();
        if number % 2 == 0 {
            order.reverse();
        }
        for (at, run) in order.iter().enumerate() {
            let round = harness.run(*run, length).await?;
            let of = format!("round {number}/{}, {}/{}", options.rounds, at + 1, order.len());
            output::print_progress(&format!("{of}: {run}: {round}"));
            data.0.entry(*run).or_default().push(round);
        }
    }

    let figures = match options.arm {
        Some(Arm::Mixed) => goals::mixed(&data, connections),
        None if for_goals => goals::all(&data, connections),
        None => Vec::new(),
    };
    let BenchArgs { rounds, seconds, .. } = *options;
    Ok(Results {
        machine,
        method: Method { rounds, seconds, connections },
        runs: data.results(strategies),
        figures,
        left_out: Vec::new(),
    })
}
