//! Formats the results as text for a terminal.

use std::fmt::Write as _;

use super::goals::Goal;
use super::machine::Machine;
use super::measurements::Spread;
use super::results::{Method, Results, StrategyResult};
use crate::output::grouped;

/// Returns the table of the strategies; with `goals`, also every figure beside its goals.
pub(super) fn table(results: &Results, goals: bool) -> String {
    let mut text = String::new();
    let Results { machine, method, .. } = results;
    let _ = writeln!(text, "\n{}\n{}\n", describe_machine(machine), describe_method(method));
    let _ = writeln!(
        text,
        "{:<10}{:>6}{:>10}{:>17}{:>10}{:>10}{:>9}{:>7}{:>8}  audit",
        "one item", "pool", "orders/s", "(min–max)", "p50 ms", "p99 ms", "/ owner", "fair", "reads"
    );
    for arm in &results.arms {
        let _ = writeln!(text, "{}", line(arm));
    }
    if let Some(noop) = results.noop_per_s {
        let _ = writeln!(
            text,
            "{:<10}{:>6}{:>10}{:>17}   (the same requests and responses, without an order)",
            "no-op",
            "",
            count(noop.median),
            range(noop)
        );
    }
    let _ = writeln!(
        text,
        "\nfair: Jain's index over the clients. reads: reads of Redis per order. Ratios are medians\n\
         of the rounds' ratios. The clients ran on the same cores: only ratios carry over."
    );
    if goals {
        text.push_str(&goals_table(&results.figures));
    }
    text
}

fn line(arm: &StrategyResult) -> String {
    let mut line = format!("{:<10}{:>6}", arm.name, arm.pool_size);
    let Some(orders) = arm.orders_per_s else {
        let _ = write!(line, "{:>10}  {}", "–", arm.audit);
        return line;
    };
    let _ = write!(
        line,
        "{:>10}{:>17}{:>10}{:>10}{:>9}{:>7}{:>8}  sound",
        count(orders.median),
        range(orders),
        maybe(arm.p50_ms, short),
        maybe(arm.p99_ms, short),
        maybe(arm.ratio_to_owner.map(|ratio| ratio.median), |ratio| format!("{}×", short(ratio))),
        maybe(arm.jain_clients, |jain| format!("{jain:.2}")),
        maybe(arm.redis_reads_per_order, |reads| format!("{reads:.2}")),
    );
    for (status, count) in &arm.refused {
        let _ = write!(line, ", {count} × {status}");
    }
    if arm.lost > 0 {
        let _ = write!(line, ", {} connections lost", arm.lost);
    }
    line
}

fn goals_table(figures: &[Goal]) -> String {
    let mut text = format!(
        "\n{:<6}{:<48}{:>10}{:>17}{:>10}{:>11}\n",
        "goal", "", "median", "(min–max)", "at least", "target"
    );
    for figure in figures {
        let sign = if figure.less_is_better() { "≤" } else { "≥" };
        let goal = |goal: f64| format!("{sign} {}", trimmed(goal));
        let value = maybe(figure.value, |value| format!("{}{}", short(value.median), figure.unit));
        let spread =
            figure.value.filter(|value| value.min < value.max).map_or(String::new(), range);
        let _ = writeln!(
            text,
            "{:<6}{:<48}{value:>10}{spread:>17}{:>10}{:>11}  {}",
            figure.id,
            figure.what,
            goal(figure.at_least),
            goal(figure.reach_for),
            figure.verdict()
        );
    }
    text
}

pub(super) fn describe_machine(machine: &Machine) -> String {
    let Machine { date, holdfast, cores, cpu, memory_mb, system, postgres, redis, .. } = machine;
    let cpu = cpu.as_deref().unwrap_or("unknown processor");
    let memory = memory_mb.map_or(String::new(), |mb| format!(", {} GB", (mb + 512) / 1_024));
    let day = date.split('T').next().unwrap_or(date);
    let load = machine.load_average.map_or(String::new(), |load| format!(", load {load:.1}"));
    let debug = if machine.optimised { "" } else { " (NOT optimised: figures mean nothing)" };
    format!(
        "Holdfast {holdfast}{debug}, {day}. {cores} cores ({cpu}){memory}, {system}{load}.\n\
         Postgres {postgres} (fsync and synchronous_commit on), {redis}.\n\
         An fsync of its disk takes {} µs; the longest within two seconds took {} ms.",
        machine.fsync_us, machine.fsync_longest_ms
    )
}

pub(super) fn describe_method(method: &Method) -> String {
    let Method { rounds, seconds, connections, replicas, .. } = method;
    format!(
        "{connections} clients, {replicas} replicas, {rounds} round{} of {seconds} s in \
         alternating order; audited after every run.",
        if *rounds == 1 { "" } else { "s" }
    )
}

fn range(spread: Spread) -> String {
    format!("({}–{})", short(spread.min), short(spread.max))
}

fn maybe<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or("–".to_owned(), show)
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

/// Formats a whole number with thousands separators.
pub(super) fn count(value: f64) -> String {
    grouped(value.round_ties_even() as u64)
}

fn trimmed(goal: f64) -> String {
    let text = format!("{goal:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
        assert_eq!([15.0, 0.12, 1.5].map(trimmed), ["15", "0.12", "1.5"]);
    }
}
