//! What a judgement says of a lock: its verdict, and what became of the updates under each fault.
//! The terminal, pages, saved files and `docs/JUDGED.md` are views of it.

use holdfast_base::message;
use holdfast_base::messages::{Language, Message};

use super::fault::Fault;
use super::report::{FaultReport, Judgement, Repeats};

/// A lock sends Redis fewer commands per grant than this if it does not use it: a client library
/// may ping.
const MIN_COMMANDS: f64 = 0.05;

/// The two rows of a table of updates: those of a lock, and those of one with fences whose writes
/// demand the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    WithoutFence,
    WithFence,
}

/// What became of the updates of a row under a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    NotRun,
    /// None was lost, and the fault does not strike the servers that the lock uses.
    Elsewhere,
    /// So many updates were lost; 0 is safe.
    Updates(u64),
    /// So many runs of a fault that ran several times lost updates.
    Runs {
        lost: u32,
        runs: u32,
    },
}

impl Cell {
    pub fn is_loss(self) -> bool {
        match self {
            Self::NotRun | Self::Elsewhere => false,
            Self::Updates(lost) => lost > 0,
            Self::Runs { lost, .. } => lost > 0,
        }
    }
}

/// A sentence of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub text: String,
    pub is_loss: bool,
}

impl FaultReport {
    /// Returns the fault; `None` for one of a later version.
    pub fn fault(&self) -> Option<Fault> {
        Fault::named(&self.name)
    }

    /// Returns the fault's name in a language; that of an unknown one, from a file, as it stands.
    pub fn title(&self, language: Language) -> String {
        self.fault().map_or_else(|| self.name.clone(), |fault| fault.title(language))
    }

    /// Returns whether any of the fault's runs lost an update.
    pub fn loses_updates(&self) -> bool {
        self.updates(Row::WithoutFence).is_loss()
    }

    /// Returns whether any of the fault's runs lost an update despite the fence.
    pub fn loses_with_fence(&self) -> bool {
        self.updates(Row::WithFence).is_loss()
    }

    /// Returns what became of the updates of a row, wherever the fault strikes.
    pub fn updates(&self, row: Row) -> Cell {
        let lost = match row {
            Row::WithoutFence => Some(self.lost_updates),
            Row::WithFence => self.with_fence.as_ref().map(|fenced| fenced.lost_updates),
        };
        match (lost.filter(|_| self.ran), self.repeats) {
            (None, _) => Cell::NotRun,
            (Some(lost), None) => Cell::Updates(lost),
            // The report is that of one of the runs: the other row may have lost in another one.
            (Some(_), Some(Repeats { runs, lost, lost_with_fence, .. })) => match row {
                Row::WithoutFence => Cell::Runs { lost, runs },
                Row::WithFence => Cell::Runs { lost: lost_with_fence, runs },
            },
        }
    }

    /// Returns whether a lock that does this work without a fault is not struck by a fault.
    pub(crate) fn is_out_of_reach(&self, fault: Fault) -> bool {
        fault.strikes_redis() && self.redis_commands < MIN_COMMANDS
    }
}

impl Judgement {
    pub fn report(&self, fault: &str) -> Option<&FaultReport> {
        self.faults.iter().find(|report| report.name == fault)
    }

    /// Returns the faults that ran, without the pass that has none.
    pub fn injected(&self) -> impl Iterator<Item = &FaultReport> {
        self.faults.iter().filter(|it| it.ran && it.fault() != Some(Fault::Undisturbed))
    }

    /// Returns whether the fault strikes servers that the lock does not use: one of Redis, while
    /// the lock sent no command there.
    pub fn is_elsewhere(&self, report: &FaultReport) -> bool {
        let undisturbed = self.faults.first();
        let fault = report.fault();
        undisturbed.zip(fault).is_some_and(|(none, fault)| none.is_out_of_reach(fault))
    }

    pub fn uses_redis(&self) -> bool {
        self.faults.first().is_none_or(|none| none.redis_commands >= MIN_COMMANDS)
    }

    pub fn cell(&self, report: &FaultReport, row: Row) -> Cell {
        let updates = report.updates(row);
        let is_counted = updates == Cell::NotRun || updates.is_loss();
        if !is_counted && self.is_elsewhere(report) { Cell::Elsewhere } else { updates }
    }

    /// Returns whether an update was lost under any fault.
    pub fn has_loss(&self) -> bool {
        self.faults.iter().any(FaultReport::loses_updates)
    }

    pub fn has_fence(&self) -> bool {
        self.faults.iter().any(|report| report.with_fence.is_some())
    }

    /// Returns how many of the faults that ran touch the lock, and how many do not apply: they say
    /// nothing about a lock that does not use their servers.
    pub fn reach(&self) -> (usize, usize) {
        let ran = self.injected().count();
        let applies = |report: &&FaultReport| report.loses_updates() || !self.is_elsewhere(report);
        let touching = self.injected().filter(applies).count();
        (touching, ran - touching)
    }

    /// Returns the verdict: `Loses updates under 3 of 11 faults`, of those that touch the lock. It
    /// counts faults, not updates: a fault that ran several times has no number of updates, and 1
    /// is no better than 100.
    pub fn verdict(&self) -> Message {
        let (faults, others) = self.reach();
        let under = self.injected().filter(|report| report.loses_updates()).count();
        let undisturbed = self.report(Fault::Undisturbed.name()).filter(|report| report.ran);

        let counted = message!("judge-verdict-nothing", faults, under, others);
        match undisturbed {
            Some(report) if report.loses_updates() => {
                counted.with_id("judge-verdict-lost-undisturbed")
            }
            None if self.injected().next().is_none() => counted,
            _ => counted.with_id(match (self.has_loss(), others) {
                (true, 0) => "judge-verdict-lost",
                (true, _) => "judge-verdict-lost-touched",
                (false, 0) => "judge-verdict-safe",
                (false, _) => "judge-verdict-safe-touched",
            }),
        }
    }

    /// Returns the verdict as it is shown: of a lock with fences both halves, what it does with a
    /// store that checks them, and without.
    pub fn statements(&self, language: Language) -> Vec<Statement> {
        let is_loss = self.has_loss();
        let verdict = self.verdict().text(language);
        if !self.has_fence() {
            return vec![Statement { text: verdict, is_loss }];
        }

        let verdict = without_capital(&verdict);
        let without_fence = message!("judge-half-no-fence", verdict).text(language);
        let lost = self.faults.iter().filter(|report| report.loses_with_fence());
        let faults: Vec<String> = lost.map(|report| report.title(language)).collect();
        let with_fence = match faults.as_slice() {
            [] => Message::new("judge-half-fence-safe"),
            faults => message!("judge-half-fence-lost", faults = language.list(faults)),
        };
        vec![
            Statement { text: with_fence.text(language), is_loss: !faults.is_empty() },
            Statement { text: without_fence, is_loss },
        ]
    }
}

/// Returns a sentence as it goes on after a colon.
pub(crate) fn without_capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
