//! The judgement as text for a terminal.

use super::report::{FaultReport, Judgement, Repeats, WithFence};
use holdfast_base::output::grouped;

/// Columns after the fault's name: heading and width.
const COLUMNS: [(&str, usize); 12] = [
    ("lost", 9),
    ("fenced", 9),
    ("overlaps", 9),
    ("bad releases", 13),
    ("fences back", 12),
    ("false busy", 11),
    ("blocked", 10),
    ("starved", 8),
    ("p50", 9),
    ("p99", 10),
    ("held", 6),
    ("Jain", 6),
];

/// Formats the judgement: a line per fault, a sentence per violation, and the verdict.
pub fn format_judgement(judgement: &Judgement) -> String {
    let adapter = &judgement.adapter;
    let mut text = format!(
        "{} ({}, {}), TTL {} ms, seed {}\n\n",
        adapter.name,
        if adapter.fencing { "with fences" } else { "no fences" },
        if adapter.renews { "renews its lease" } else { "does not renew its lease" },
        grouped(judgement.ttl_ms),
        judgement.seed,
    );

    let width = judgement.faults.iter().map(|fault| fault.name.len()).max().unwrap_or(0);
    let headings: String =
        COLUMNS.iter().map(|(heading, width)| format!("{heading:>width$}")).collect();
    text += &format!("{:width$}{headings}\n", "fault");
    for fault in &judgement.faults {
        let is_elsewhere = judgement.is_elsewhere(fault);
        text += &format!("{:width$}{}\n", fault.name, line(fault, COLUMNS.len(), is_elsewhere));
    }

    if judgement.faults.iter().any(|fault| fault.repeats.is_some()) {
        text +=
            "\n`3 of 7`: three of seven runs lost an update. The line shows the first of them.\n";
    }
    let (touching, others) = judgement.reach();
    if others > 0 {
        text += "\n`○`: the fault strikes the judge's Redis, where this lock sends no commands.\n";
    }
    for fault in &judgement.faults {
        for violation in &fault.violations {
            text += &format!("\n{}, {}: {}.\n", fault.name, violation.kind, violation.text);
        }
    }
    text + "\n" + &verdict(judgement, touching, others)
}

/// Columns that a history has: those of safety.
const HISTORY_COLUMNS: usize = 5;

/// Formats what was computed from a history: a line per fault, and the verdict.
pub fn format_history(judgement: &Judgement) -> String {
    let width = judgement.faults.iter().map(|fault| fault.name.len()).max().unwrap_or(0).max(5);
    let columns = &COLUMNS[..HISTORY_COLUMNS];
    let headings: String =
        columns.iter().map(|(heading, width)| format!("{heading:>width$}")).collect();
    let mut text = format!(
        "history of {}, judged {}\n\n{:width$}{headings}\n",
        judgement.adapter.name, judgement.started_at, "fault"
    );
    for fault in &judgement.faults {
        text += &format!("{:width$}{}\n", fault.name, line(fault, HISTORY_COLUMNS, false));
    }
    // A history has no commands of Redis, by which one sees what touches the lock.
    text + "\n" + &verdict(judgement, judgement.injected().count(), 0)
}

/// `is_elsewhere`: the fault does not touch the lock.
fn line(fault: &FaultReport, columns: usize, is_elsewhere: bool) -> String {
    if let Some(why_not) = fault.why_not.as_ref().filter(|_| !fault.ran) {
        let first = why_not.lines().next().unwrap_or_default();
        return format!("  did not run: {first}");
    }

    let fenced = fault.with_fence.as_ref();
    let cells = [
        if is_elsewhere && !fault.loses_updates() { "○".to_owned() } else { lost(fault) },
        fenced.map_or_else(|| "–".to_owned(), |fenced| lost_with_fence(fault, fenced)),
        grouped(fault.overlaps),
        grouped(fault.release_ok_when_lost),
        fenced.map_or_else(|| "–".to_owned(), |_| grouped(fault.fence_regressions)),
        grouped(fault.misreported_busy),
        milliseconds(fault.blocked_ms_max as f64),
        grouped(fault.waiters_starved),
        milliseconds(fault.wait_p50_ms),
        milliseconds(fault.wait_p99_ms),
        format!("{:.0} %", 100.0 * fault.held_share),
        format!("{:.2}", fault.jain),
    ];

    let cells = cells.iter().zip(COLUMNS).take(columns);
    cells.map(|(cell, (_, width))| format!("{cell:>width$}")).collect()
}

/// Formats the runs that lost an update, or of a fault that ran once the updates.
fn lost(fault: &FaultReport) -> String {
    match fault.repeats {
        Some(Repeats { lost, runs, .. }) => format!("{lost} of {runs}"),
        None => grouped(fault.lost_updates),
    }
}

fn lost_with_fence(fault: &FaultReport, fenced: &WithFence) -> String {
    match fault.repeats {
        Some(Repeats { lost_with_fence, runs, .. }) => format!("{lost_with_fence} of {runs}"),
        None => grouped(fenced.lost_updates),
    }
}

fn milliseconds(ms: f64) -> String {
    format!("{} ms", grouped(ms.round() as u64))
}

fn verdict(judgement: &Judgement, touching: usize, others: usize) -> String {
    let lost = judgement.faults.iter().filter(|fault| fault.loses_updates());
    let lost: Vec<&str> = lost.map(|fault| &*fault.name).collect();

    let under = match (touching, others) {
        (0, 0) => "without a fault".to_owned(),
        (0, _) => format!("without a fault that touches it; {others} do not apply"),
        (1, 0) => "under 1 fault".to_owned(),
        (_, 0) => format!("under {touching} faults"),
        (1, _) => format!("under the 1 fault that touches it; {others} do not apply"),
        _ => format!("under the {touching} faults that touch it; {others} do not apply"),
    };
    match lost.as_slice() {
        [] => format!("Safe: no lost update {under}.\n"),
        lost if others > 0 => {
            format!("NOT safe: lost updates under {}; {others} do not apply.\n", lost.join(", "))
        }
        lost => format!("NOT safe: lost updates under {}.\n", lost.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_the_faults_that_touch_the_lock() {
        let json = include_str!("../../../docs/judged/advisory-lock.json");
        let judgement: Judgement = serde_json::from_str(json).unwrap();
        let text = format_judgement(&judgement);
        let verdict = "Safe: no lost update under the 5 faults that touch it; 9 do not apply.\n";
        assert!(text.ends_with(verdict), "{text}");
        let lost = |fault: &str| {
            let line = text.lines().find(|line| line.split(' ').next() == Some(fault)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!((lost("pause").as_str(), lost("redis-flush").as_str()), ("0", "○"), "{text}");
    }
}
