//! The columns of a judgement's tables.

pub use holdfast_base::output::grouped as count;
use holdfast_judge::report::FaultReport;

pub struct Column {
    /// Its name in messages.
    pub name: &'static str,
    /// The kind of violation that marks its figure; empty for none.
    violation: &'static str,
    text: fn(&FaultReport) -> String,
}

impl Column {
    pub fn figure(&self, fault: &FaultReport) -> String {
        (self.text)(fault)
    }

    /// Returns the style of a figure. Some keys remain without a violation, too.
    pub fn mark(&self, fault: &FaultReport) -> &'static str {
        let is_found = fault.violations.iter().any(|found| found.kind == self.violation);
        match self.violation {
            _ if !is_found => "",
            "lost-update" | "lost-with-fence" => "off",
            _ => "found",
        }
    }
}

/// Returns the columns of lost updates and other violations. Those of fences are left out of a
/// judgement without any.
pub fn safety(has_fence: bool) -> impl Iterator<Item = &'static Column> {
    let of_fences = |column: &&Column| ["fenced", "refused", "fence"].contains(&column.name);
    SAFETY.iter().filter(move |column| has_fence || !of_fences(column))
}

/// Formats the runs that lost updates among all: `3/10`.
pub fn share(lost: u32, runs: u32) -> String {
    format!("{lost}/{runs}")
}

const fn column(
    name: &'static str,
    violation: &'static str,
    text: fn(&FaultReport) -> String,
) -> Column {
    Column { name, violation, text }
}

static SAFETY: [Column; 7] = [
    column("lost", "lost-update", |fault| match fault.repeats {
        Some(repeats) => share(repeats.lost, repeats.runs),
        None => count(fault.lost_updates),
    }),
    column("fenced", "lost-with-fence", |fault| match (&fault.with_fence, fault.repeats) {
        (None, _) => "–".to_owned(),
        (_, Some(repeats)) => share(repeats.lost_with_fence, repeats.runs),
        (Some(fenced), None) => count(fenced.lost_updates),
    }),
    column("refused", "", |fault| {
        fault.with_fence.as_ref().map_or("–".to_owned(), |fenced| count(fenced.refused))
    }),
    column("overlaps", "overlap", |fault| count(fault.overlaps)),
    column("release", "release-ok-when-lost", |fault| count(fault.release_ok_when_lost)),
    column("fence", "fence-regression", |fault| count(fault.fence_regressions)),
    column("busy", "misreported-busy", |fault| count(fault.misreported_busy)),
];

/// Liveness and cost; the unit is in the column's head.
pub static COST: [Column; 11] = [
    column("blocked", "blocked", |fault| count(fault.blocked_ms_max)),
    column("starved", "starved", |fault| count(fault.waiters_starved)),
    column("leftover", "leftover-key", |fault| count(fault.leftover_keys)),
    column("held", "", |fault| format!("{:.0}", fault.held_share * 100.0)),
    column("p50", "", |fault| milliseconds(fault.wait_p50_ms)),
    column("p99", "", |fault| milliseconds(fault.wait_p99_ms)),
    column("ratio", "", |fault| format!("{:.1}", fault.wait_ratio)),
    column("jain", "", |fault| format!("{:.2}", fault.jain)),
    column("acquired", "", |fault| count(fault.acquired)),
    column("errors", "", |fault| count(fault.errors)),
    column("commands", "", |fault| format!("{:.1}", fault.redis_commands)),
];

fn milliseconds(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { count(ms.round() as u64) }
}
