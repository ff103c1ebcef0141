//! The judgement as text for a terminal.

use holdfast_base::messages::Language;
use holdfast_base::output::grouped;

use super::columns::{Column, Figure};
use super::report::{FaultReport, Judgement, Repeats};
use super::verdict::{Outcome, Row, VerdictCell, without_capital};

/// Columns after the fault's name: heading, width, and unit of the figures.
const COLUMNS: [(Column, &str, usize, &str); 15] = [
    (Column::Lost, "lost", 9, ""),
    (Column::Turns, "turns", 8, ""),
    (Column::Fenced, "fenced", 9, ""),
    (Column::Refused, "refused", 9, ""),
    (Column::Saved, "saved", 7, ""),
    (Column::Overlaps, "overlaps", 9, ""),
    (Column::Release, "bad releases", 13, ""),
    (Column::Fence, "fences back", 12, ""),
    (Column::Busy, "false busy", 11, ""),
    (Column::Blocked, "blocked", 10, " ms"),
    (Column::Starved, "starved", 8, ""),
    (Column::P50, "p50", 9, " ms"),
    (Column::P99, "p99", 10, " ms"),
    (Column::Held, "held", 6, " %"),
    (Column::Jain, "Jain", 6, ""),
];
/// Columns that a history has: those of safety.
const HISTORY_COLUMNS: usize = 8;

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
    text += &table(judgement, COLUMNS.len());

    // Of a fault that lost updates, if there is one.
    let repeats = judgement.faults.iter().filter_map(|fault| fault.repeats);
    if let Some(Repeats { runs, lost_in, .. }) = repeats.min_by_key(|it| it.lost_in == 0) {
        let shown = if lost_in > 0 { "first of them" } else { "first run" };
        let lost = format!("{lost_in} of {runs}");
        text += &format!("\n`{lost}`: {lost} runs lost an update. The line shows the {shown}.\n");
    }
    for said in judgement.notes(Language::English) {
        text += &format!("\n{said}.\n");
    }
    if judgement.reach().1 > 0 {
        text += "\n`○`: the fault strikes what this lock does not use: Redis, or a connection.\n";
    }
    for fault in &judgement.faults {
        for violation in &fault.violations {
            text += &format!("\n{}, {}: {}.\n", fault.name, violation.kind, violation.text);
        }
    }
    text + "\n" + &verdict(judgement)
}

/// Formats what was computed from a history: a line per fault, and the verdict.
pub fn format_history(judgement: &Judgement) -> String {
    let name = &judgement.adapter.name;
    let heading = format!("history of {name}, judged {}\n\n", judgement.started_at);
    heading + &table(judgement, HISTORY_COLUMNS) + "\n" + &verdict(judgement)
}

fn table(judgement: &Judgement, columns: usize) -> String {
    let names = judgement.faults.iter().map(|fault| fault.name.len());
    let width = names.chain(["fault".len()]).max().unwrap_or(0);
    let columns = COLUMNS[..columns].iter();
    let columns: Vec<_> = columns.filter(|(column, ..)| column.applies_to(judgement)).collect();
    let headings = columns.iter().map(|(_, heading, width, _)| format!("{heading:>width$}"));

    let mut text = format!("{:width$}{}\n", "fault", headings.collect::<String>());
    for fault in &judgement.faults {
        let cells = line(judgement, fault, &columns);
        text += &format!("{:width$}{cells}\n", fault.name);
    }
    text
}

fn line(
    judgement: &Judgement,
    fault: &FaultReport,
    columns: &[&(Column, &str, usize, &str)],
) -> String {
    if let Some(why_not) = fault.why_not.as_ref().filter(|_| !fault.ran) {
        let first = why_not.lines().next().unwrap_or_default();
        return format!("  did not run: {first}");
    }

    let cells = columns.iter().map(|(column, _, width, unit)| {
        let is_elsewhere = *column == Column::Lost
            && judgement.cell(fault, Row::WithoutFence) == VerdictCell::Elsewhere;
        let cell = match column.figure(fault) {
            _ if is_elsewhere => "○".to_owned(),
            Figure::Runs { lost, runs } => format!("{lost} of {runs}"),
            Figure::Ms(ms) => format!("{}{unit}", grouped(ms.round() as u64)),
            figure => format!("{}{unit}", figure.number()),
        };
        format!("{cell:>width$}")
    });
    cells.collect()
}

/// Formats the verdict; it names the faults, unless the lock is safe and all were asked for.
fn verdict(judgement: &Judgement) -> String {
    let ran = judgement.faults.iter().filter(|fault| fault.ran).map(|fault| fault.name.as_str());
    let safe = match judgement.unasked().next() {
        Some(_) => format!("Safe under {}", ran.collect::<Vec<_>>().join(", ")),
        None => "Safe".to_owned(),
    };
    let mut text = String::new();
    for statement in judgement.statements(Language::English) {
        let outcome = match statement.outcome {
            Outcome::Loss => "NOT safe",
            Outcome::Safe => safe.as_str(),
            Outcome::FencesBack => "NOT a fence",
            Outcome::NotJudged => "NOT judged",
        };
        text += &format!("{outcome}: {}", without_capital(&statement.text));
        text += ".\n";
    }
    let lost = judgement.lost_under(Language::English);
    text + &lost.map_or_else(String::new, |said| format!("{said}.\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_the_faults_that_touch_the_lock() {
        let json = include_str!("../../../docs/judged/flock.json");
        let judgement: Judgement = serde_json::from_str(json).unwrap();
        let text = format_judgement(&judgement);
        let verdict = " turns under the 5 faults that touch it; 11 do not apply.\n";
        assert!(text.ends_with(verdict), "{text}");
        let lost = |fault: &str| {
            let line = text.lines().find(|line| line.split(' ').next() == Some(fault)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!((lost("pause").as_str(), lost("redis-flush").as_str()), ("0", "○"), "{text}");
    }

    #[test]
    fn verdict_of_few_faults_and_legend_say_what_ran() {
        let json = include_str!("../../../docs/judged/flock.json");
        let mut judgement: Judgement = serde_json::from_str(json).unwrap();
        judgement.faults.retain(|it| ["none", "pause", "partition"].contains(&it.name.as_str()));
        let repeats = |lost_in| Repeats { runs: 7, lost_in, lost_in_with_fence: 0, run_seed: 1 };
        judgement.faults[1].repeats = Some(repeats(0));
        judgement.faults.iter_mut().for_each(|fault| fault.bypassed = true);
        let text = format_judgement(&judgement);
        for said in [
            "\nSafe under none, pause, partition: no lost update in ",
            "; 15 faults were not asked for: long-work, kill-holder, ",
            "\n`0 of 7`: 0 of 7 runs lost an update. The line shows the first run.\n",
            "\nNo connection went through the proxy",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }

        judgement.faults[2].repeats = Some(repeats(3));
        judgement.faults[2].bypassed = false;
        let text = format_judgement(&judgement);
        assert!(text.contains("\n`3 of 7`: 3 of 7 runs lost") && !text.contains("No connection"));
    }
}
