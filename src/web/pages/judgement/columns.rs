//! The columns of a judgement's tables.

use crate::judge::report::FaultReport;
use crate::messages::Language;
pub use crate::output::grouped as count;

/// A cell of a table.
#[derive(Debug)]
pub struct FigureCell {
    pub text: String,
    /// `loss`, `found` for another violation, or empty.
    pub kind: &'static str,
}

/// A column, with its figure.
pub type Column<T> = (&'static str, fn(&FaultReport) -> T);

/// Violations that lose no update by themselves.
const OTHERS: [Column<u64>; 4] = [
    ("overlaps", |fault| fault.overlaps),
    ("release", |fault| fault.release_ok_when_lost),
    ("fence", |fault| fault.fence_regressions),
    ("busy", |fault| fault.misreported_busy),
];

/// Liveness and cost; the unit is in the column's head.
const COST: [Column<String>; 11] = [
    ("blocked", |fault| count(fault.blocked_ms_max)),
    ("starved", |fault| count(fault.waiters_starved)),
    ("leftover", |fault| count(fault.leftover_keys)),
    ("held", |fault| format!("{:.0}", fault.held_share * 100.0)),
    ("p50", |fault| milliseconds(fault.wait_p50_ms)),
    ("p99", |fault| milliseconds(fault.wait_p99_ms)),
    ("ratio", |fault| format!("{:.1}", fault.wait_ratio)),
    ("jain", |fault| format!("{:.2}", fault.jain)),
    ("acquired", |fault| count(fault.acquired)),
    ("errors", |fault| count(fault.errors)),
    ("commands", |fault| format!("{:.1}", fault.redis_commands)),
];
/// The columns whose figures are violations only if the judge says so, and the violations' kinds.
const LIVENESS: [(&str, &str); 3] =
    [("blocked", "blocked"), ("starved", "starved"), ("leftover", "leftover-key")];
/// Those of them that can be added up.
const LIVENESS_SUMS: [Column<u64>; 2] =
    [("starved", |fault| fault.waiters_starved), ("leftover", |fault| fault.leftover_keys)];

fn milliseconds(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { count(ms.round() as u64) }
}

/// Returns the names of the columns of lost updates and other violations.
pub fn safety_names(has_fence: bool) -> impl Iterator<Item = &'static str> {
    let lost = ["lost"].into_iter().chain(has_fence.then_some("fenced"));
    // Without a fence there is none that could go back.
    lost.chain(OTHERS.map(|(name, _)| name)).filter(move |name| has_fence || *name != "fence")
}

/// Returns the names of the columns of liveness and cost.
pub fn cost_names() -> impl Iterator<Item = &'static str> {
    COST.map(|(name, _)| name).into_iter()
}

/// Returns the figures of [`safety_names`].
pub fn safety(fault: &FaultReport, has_fence: bool, language: Language) -> Vec<FigureCell> {
    let loss = |lost: u64| if lost > 0 { "loss" } else { "" };
    let figure = |name| match name {
        "lost" => FigureCell { text: count(fault.lost_updates), kind: loss(fault.lost_updates) },
        "fenced" => match &fault.with_fence {
            None => FigureCell { text: "–".to_owned(), kind: "" },
            Some(fenced) => {
                let variables = [
                    ("lost", count(fenced.lost_updates).into()),
                    ("refused", count(fenced.refused).into()),
                ];
                let text = language.text_with("judge-fenced", &variables);
                FigureCell { text, kind: loss(fenced.lost_updates) }
            }
        },
        name => {
            let other = OTHERS.iter().find(|(other, _)| *other == name);
            let number = other.map_or(0, |(_, figure)| figure(fault));
            FigureCell { text: count(number), kind: if number > 0 { "found" } else { "" } }
        }
    };
    safety_names(has_fence).map(figure).collect()
}

/// Returns the figures of [`cost_names`].
pub fn cost(fault: &FaultReport) -> Vec<FigureCell> {
    let figure = |(name, figure): &Column<String>| FigureCell {
        text: figure(fault),
        kind: if is_violation(fault, name) { "found" } else { "" },
    };
    COST.iter().map(figure).collect()
}

/// Returns whether the figure of a column of liveness is a violation: some keys remain without a
/// fault, too.
fn is_violation(fault: &FaultReport, column: &str) -> bool {
    let kind = LIVENESS.iter().find(|(name, _)| *name == column).map(|(_, kind)| *kind);
    fault.violations.iter().any(|violation| Some(&*violation.kind) == kind)
}

/// Returns the sums of violations that are not lost updates, without zeros.
pub fn sums_of_others(faults: &[&FaultReport], language: Language) -> Vec<String> {
    let sum = |(name, figure): &Column<u64>| {
        let is_liveness = LIVENESS.iter().any(|(column, _)| column == name);
        let counts = |fault: &&&FaultReport| !is_liveness || is_violation(fault, name);
        let sum = faults.iter().filter(counts).map(|fault| figure(fault));
        let sum = sum.fold(0_u64, u64::saturating_add);
        let name = language.text(&format!("judge-column-{name}"));
        let variables = [("name", name.into()), ("count", count(sum).into())];
        (sum > 0).then(|| language.text_with("judge-other", &variables))
    };
    OTHERS.iter().chain(&LIVENESS_SUMS).filter_map(sum).collect()
}
