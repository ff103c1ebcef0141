//! Formats the results as text for a terminal.

use std::fmt::Write as _;

use super::goals::Goal;
use super::results::{Machine, Method, Results, SharedServers};
use super::runs::{BenchRunResult, Spread};
use holdfast_base::IS_FULL_BUILD;
use holdfast_base::output::grouped;

const NOTES: &str = "
fair: Jain's index over the clients. reads: reads of Redis per order. Ratios are medians
of the rounds' ratios. The clients ran on the same cores: only ratios carry over.
";
const NOTES_ON_MIXED_LOAD: &str = "\
Of the requests 10 % are cancels, which are not in orders/s, 12 % orders by other strategies, 6 % of
two items. Each client keeps to one replica, unless by turns; unevenly: two in three to the first.
returned: share of the forwarded commands that came back unexecuted.
";
const NOTES_ON_SHARED_SERVERS: &str = "
fair: Jain's index over the clients. Ratios are medians of the rounds' ratios. Clients and replicas
ran on this machine; at the no-op's rate its cores are the limit, not your servers. Reads of Redis
are not counted, as others may use it. Before a run there was no checkpoint, which would disturb
others: with a (min–max) that is wide, run more --rounds, or longer --seconds.
";

/// Returns the table of the strategies; with `goals`, also every goal with its value.
pub(super) fn table(results: &Results, goals: bool) -> String {
    let has_strategies = results.hot().next().is_some();
    let replicas = if has_strategies { "two replicas" } else { "one to three replicas" };
    let machine = describe_machine(&results.machine);
    let method = describe_method(&results.method, replicas);
    let mut text = format!("\n{machine}\n{method}\n");

    if has_strategies {
        text += &strategies(results);
    }
    if results.mixed().next().is_some() {
        text += &mixed_load(results);
    }
    if goals {
        text += &goals_table(&results.figures);
    }
    text
}

fn strategies(results: &Results) -> String {
    let mut text = String::from("\n");
    let _ = writeln!(
        text,
        "{:<10}{:>10}{:>17}{:>10}{:>10}{:>9}{:>7}{:>8}  audit",
        "one item", "orders/s", "(min–max)", "p50 ms", "p99 ms", "/ owner", "fair", "reads"
    );

    for result in results.hot() {
        let _ = writeln!(text, "{}", line(result));
    }
    if let Some(noop) = results.no_op() {
        let _ = writeln!(
            text,
            "{:<10}{:>10}{:>17}   (the same requests and responses, without an order)",
            "no-op",
            count(noop.median),
            range(noop)
        );
    }

    for left_out in &results.left_out {
        let _ = writeln!(text, "Left out: {left_out}.");
    }
    text += match results.machine.yours {
        None => NOTES,
        Some(_) => NOTES_ON_SHARED_SERVERS,
    };
    text
}

fn mixed_load(results: &Results) -> String {
    let mut text = format!(
        "\n{:<22}{:>10}{:>17}{:>10}{:>9}{:>10}  audit\n",
        "mixed load", "orders/s", "(min–max)", "p99 ms", "/ one", "returned"
    );

    for result in results.mixed() {
        let _ = writeln!(
            text,
            "{:<22}{:>10}{:>17}{:>10}{:>9}{:>10}  {}{}",
            result.run.division(),
            result.per_second.map_or("–".to_owned(), |orders| count(orders.median)),
            result.per_second.map_or(String::new(), range),
            median(result.p99_ms, ""),
            median(result.ratio_to_one_replica, "×"),
            median(result.returned, ""),
            result.audit,
            refused(result),
        );
    }
    text + "\n" + NOTES_ON_MIXED_LOAD
}

fn line(result: &BenchRunResult) -> String {
    let name = result.run.strategy;
    let Some(orders) = result.per_second else {
        return format!("{name:<10}{:>10}  {}", "–", result.audit);
    };

    format!(
        "{name:<10}{:>10}{:>17}{:>10}{:>10}{:>9}{:>7}{:>8}  {}{}",
        count(orders.median),
        range(orders),
        median(result.p50_ms, ""),
        median(result.p99_ms, ""),
        median(result.ratio_to_owner, "×"),
        median(result.jain_clients, ""),
        median(result.redis_reads, ""),
        result.audit,
        refused(result),
    )
}

fn refused(result: &BenchRunResult) -> String {
    match result.refused {
        0 => String::new(),
        number => format!(", refused: {}", grouped(number)),
    }
}

fn goals_table(goals: &[Goal]) -> String {
    let mut text = format!(
        "\n{:<6}{:<48}{:>10}{:>17}{:>10}{:>11}\n",
        "goal", "", "median", "(min–max)", "at least", "target"
    );

    for goal in goals {
        let sign = if goal.less_is_better() { "≤" } else { "≥" };
        let _ = writeln!(
            text,
            "{:<6}{:<48}{:>10}{:>17}{:>10}{:>11}  {}",
            goal.id,
            goal.what,
            median(goal.value, goal.unit),
            goal.value.map_or(String::new(), range),
            format!("{sign} {}", goal.at_least),
            format!("{sign} {}", goal.reach_for),
            goal.verdict()
        );
    }
    text
}

fn describe_machine(machine: &Machine) -> String {
    let Machine { date, holdfast, cores, cpu, postgres, redis, yours } = machine;
    let build = if cfg!(debug_assertions) {
        " (NOT optimised: figures mean nothing)"
    } else if IS_FULL_BUILD {
        ""
    } else {
        " (NOT a release, and slower; `cargo build --release` makes one)"
    };
    let servers = match yours {
        None => format!("Postgres {postgres} (fsync and synchronous_commit on), {redis}."),
        Some(yours) => describe_servers(yours, postgres, redis),
    };
    format!("Holdfast {holdfast}{build}, {date}. {cores} cores ({cpu}).\n{servers}")
}

fn describe_servers(yours: &SharedServers, postgres: &str, redis: &str) -> String {
    let SharedServers { postgres_ms, redis_ms, fsync, synchronous_commit, pool_size } = yours;
    format!(
        "Your Postgres {postgres} (fsync {fsync}, synchronous_commit {synchronous_commit}), {} ms \
         for a round trip,\nand {redis}, {} ms. Each replica has {pool_size} connections to \
         Postgres.",
        short(*postgres_ms),
        short(*redis_ms),
    )
}

pub(super) fn describe_method(method: &Method, replicas: &str) -> String {
    let Method { rounds, seconds, connections } = method;
    format!(
        "{connections} clients, {replicas}, rounds: {rounds}, of {seconds} s, in \
         alternating order; audited after every run."
    )
}

fn range(spread: Spread) -> String {
    format!("({}–{})", short(spread.min), short(spread.max))
}

fn median(value: Option<Spread>, unit: &str) -> String {
    value.map_or("–".to_owned(), |value| short(value.median) + unit)
}

/// Formats with about three digits: 12,346, 850, 12.3, 0.052.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => count(value),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn count(value: f64) -> String {
    grouped(value.round_ties_even() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_by_magnitude() {
        assert_eq!(
            [0.0, 999.4, 1_000.0, 1_234_567.0].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [12_345.6, 12.34, 1.234, 0.0521].map(short),
            ["12,346", "12.3", "1.23", "0.052"]
        );
    }
}
