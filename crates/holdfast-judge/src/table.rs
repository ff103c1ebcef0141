//! The judgement as text for a terminal.

use super::report::{FaultReport, Judgement};
use holdfast_base::output::grouped;

/// Columns after the fault's name: heading and width.
const COLUMNS: [(&str, usize); 12] = [
    ("lost", 7),
    ("fenced", 7),
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
        text += &format!("{:width$}{}\n", fault.name, line(fault));
    }

    if judgement.faults.iter().any(|fault| fault.ran && judgement.is_elsewhere(fault)) {
        text += "\nThe faults of Redis do not strike this lock, which sends no commands there.\n";
    }
    for fault in &judgement.faults {
        for violation in &fault.violations {
            text += &format!("\n{}, {}: {}.\n", fault.name, violation.kind, violation.text);
        }
    }
    text + "\n" + &verdict(judgement)
}

fn line(fault: &FaultReport) -> String {
    if let Some(why_not) = fault.why_not.as_ref().filter(|_| !fault.ran) {
        let first = why_not.lines().next().unwrap_or_default();
        return format!("  did not run: {first}");
    }

    let fenced = fault.with_fence.as_ref();
    let cells = [
        grouped(fault.lost_updates),
        fenced.map_or_else(|| "–".to_owned(), |fenced| grouped(fenced.lost_updates)),
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

    let cells = cells.iter().zip(COLUMNS);
    cells.map(|(cell, (_, width))| format!("{cell:>width$}")).collect()
}

fn milliseconds(ms: f64) -> String {
    format!("{} ms", grouped(ms.round() as u64))
}

fn verdict(judgement: &Judgement) -> String {
    let lost = judgement.faults.iter().filter(|fault| fault.ran && fault.lost_updates > 0);
    let lost: Vec<&str> = lost.map(|fault| &*fault.name).collect();
    match (lost.as_slice(), judgement.injected().count()) {
        ([], 0) => "Safe: no lost update without a fault.\n".to_owned(),
        ([], faults) => format!("Safe: no lost update; faults that ran: {faults}.\n"),
        (lost, _) => format!("NOT safe: lost updates under {}.\n", lost.join(", ")),
    }
}
