//! What a judgement says of a lock: its verdict, and what became of the updates under each fault.
//! The terminal, pages, saved files and `docs/JUDGED.md` are views of it.

use holdfast_base::message;
use holdfast_base::messages::{Language, Message};
use strum::EnumIs;

use super::fault::Fault;
use super::report::{BLOCKED_TO_END, FaultReport, Judgement, Repeats};
use holdfast_base::output::grouped;

/// A lock sends Redis fewer commands per grant than this if it does not use it: a client library
/// may ping.
const MIN_COMMANDS: f64 = 0.05;
/// With 95 % confidence, what did not happen in n turns happens in fewer than this in n: the rule
/// of three, of `(1 - 3 / n)^n`.
const RULE_OF_THREE: f64 = 3.0;

/// The duties that a lock leaves to its user, each with the faults under which it loses updates.
const LEFT: [(&str, &[Fault]); 4] = [
    ("judge-leaves-late", &[Fault::Pause, Fault::Partition, Fault::LateGrant]),
    ("judge-leaves-lease", &[Fault::LongWork, Fault::SlowCommit]),
    (
        "judge-leaves-memory",
        &[Fault::RedisFlush, Fault::RedisRestart, Fault::RedisFailover, Fault::Evict],
    ),
    ("judge-leaves-session", &[Fault::SessionCut, Fault::ClientKill]),
];

/// The two rows of a table of updates: those of a lock, and those of one with fences whose writes
/// demand the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    WithoutFence,
    WithFence,
}

/// The result of a row's updates under a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictCell {
    NotRun,
    /// None was lost, and the fault does not strike the servers that the lock uses.
    Elsewhere,
    /// None was lost, but this many fences went back although nothing disturbed the lock.
    FencesBack(u64),
    /// Number of updates that were lost, and of all turns; 0 lost is safe.
    Updates {
        lost: u64,
        turns: u64,
    },
    /// Of a fault that ran several times: the runs that lost updates, all runs, and their turns.
    Runs {
        lost: u32,
        runs: u32,
        turns: u64,
    },
}

impl VerdictCell {
    pub fn is_loss(self) -> bool {
        match self {
            Self::NotRun | Self::Elsewhere | Self::FencesBack(_) => false,
            Self::Updates { lost, .. } => lost > 0,
            Self::Runs { lost, .. } => lost > 0,
        }
    }
}

/// The meaning of a sentence of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIs)]
pub enum Outcome {
    Safe,
    Loss,
    /// Nothing was lost, but fences went back although nothing disturbed the lock.
    FencesBack,
    /// The lock kept a fault from running, or no client got it any more: its safety is not known.
    NotJudged,
}

impl Outcome {
    fn of(is_loss: bool) -> Self {
        if is_loss { Self::Loss } else { Self::Safe }
    }
}

/// A sentence of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictSentence {
    pub text: String,
    pub outcome: Outcome,
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

    /// Returns whether fences went back without a fault, so that a store may refuse any holder.
    pub fn misorders_fences(&self) -> bool {
        self.fault() == Some(Fault::Undisturbed) && self.fence_regressions > 0
    }

    /// Returns whether no client got the lock any more, although it was free.
    pub fn has_stopped(&self) -> bool {
        let mut found = self.violations.iter().filter_map(|it| it.message.as_ref());
        found.any(|message| message.id() == BLOCKED_TO_END)
    }

    /// Returns what became of the updates of a row, wherever the fault strikes.
    pub fn updates(&self, row: Row) -> VerdictCell {
        let lost = match row {
            Row::WithoutFence => Some(self.lost_updates),
            Row::WithFence => self.with_fence.as_ref().map(|fenced| fenced.lost_updates),
        };
        match (lost.filter(|_| self.ran), self.repeats) {
            // Nothing was changed, so nothing is known.
            (Some(0), None) if self.turns == 0 => VerdictCell::NotRun,
            (None, _) => VerdictCell::NotRun,
            (Some(lost), None) => VerdictCell::Updates { lost, turns: self.turns },
            // The report is that of one of the runs: the other row may have lost in another one.
            (Some(_), Some(Repeats { runs, lost_in, lost_in_with_fence, .. })) => {
                let lost = match row {
                    Row::WithoutFence => lost_in,
                    Row::WithFence => lost_in_with_fence,
                };
                VerdictCell::Runs { lost, runs, turns: self.turns }
            }
        }
    }

    /// Returns whether a lock that does this work without a fault is not struck by a fault.
    pub(crate) fn is_out_of_reach(&self, fault: Fault) -> bool {
        fault.strikes_redis() && !self.uses_redis()
    }

    pub(crate) fn uses_redis(&self) -> bool {
        self.redis_commands >= MIN_COMMANDS
    }
}

impl Judgement {
    pub fn report(&self, fault: &str) -> Option<&FaultReport> {
        self.faults.iter().find(|report| report.name == fault)
    }

    /// Returns the faults that were not asked for, of which the judgement has no report.
    pub fn unasked(&self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(|fault| self.report(fault.name()).is_none())
    }

    /// Returns the faults that ran, without the pass that has none.
    pub fn injected(&self) -> impl Iterator<Item = &FaultReport> {
        self.faults.iter().filter(|it| it.ran && it.fault() != Some(Fault::Undisturbed))
    }

    /// Returns whether the fault strikes what the lock does not use: Redis, while the lock sent no
    /// command there, or connections, while it had none.
    pub fn is_elsewhere(&self, report: &FaultReport) -> bool {
        let undisturbed = self.faults.first();
        let fault = report.fault();
        report.untouched
            || undisturbed.zip(fault).is_some_and(|(none, fault)| none.is_out_of_reach(fault))
    }

    pub fn uses_redis(&self) -> bool {
        self.faults.first().is_none_or(FaultReport::uses_redis)
    }

    pub fn cell(&self, report: &FaultReport, row: Row) -> VerdictCell {
        let updates = report.updates(row);
        let is_counted = updates == VerdictCell::NotRun || updates.is_loss();
        if !is_counted && row == Row::WithFence && report.misorders_fences() {
            return VerdictCell::FencesBack(report.fence_regressions);
        }
        if !is_counted && self.is_elsewhere(report) { VerdictCell::Elsewhere } else { updates }
    }

    /// Returns whether an update was lost under any fault.
    pub fn has_loss(&self) -> bool {
        self.faults.iter().any(FaultReport::loses_updates)
    }

    pub fn has_fence(&self) -> bool {
        self.faults.iter().any(|report| report.with_fence.is_some())
    }

    /// Returns the faults that did not run because of the lock.
    pub fn prevented(&self) -> impl Iterator<Item = &FaultReport> {
        self.faults.iter().filter(|report| report.prevented)
    }

    /// Returns the faults after which no client got the lock any more.
    pub fn stopped(&self) -> impl Iterator<Item = &FaultReport> {
        self.faults.iter().filter(|report| report.has_stopped())
    }

    /// Returns the faults that ran and touch the lock: the others say nothing about a lock that
    /// does not use their servers.
    pub fn touching(&self) -> impl Iterator<Item = &FaultReport> {
        self.injected().filter(|report| report.loses_updates() || !self.is_elsewhere(report))
    }

    /// Returns how many of the faults that ran touch the lock, and how many do not apply.
    pub fn reach(&self) -> (usize, usize) {
        let touching = self.touching().count();
        (touching, self.injected().count() - touching)
    }

    /// Returns the sentence that says which of the faults touch the lock; `None` if none ran.
    pub fn reached(&self, language: Language) -> Option<String> {
        let (touching, others) = self.reach();
        let names: Vec<String> = self.touching().map(|report| report.title(language)).collect();
        let ran = touching + others;
        (ran > 0).then(|| {
            message!("judge-reach", touching, ran, faults = language.list(&names)).text(language)
        })
    }

    /// Returns what is to be known beside the verdict: how sure it is that the lock is safe without
    /// a fault, which faults touch it, and that it bypassed the proxies.
    pub fn notes(&self, language: Language) -> impl Iterator<Item = String> {
        self.bound(language).into_iter().chain(self.reached(language)).chain(self.bypass(language))
    }

    /// Returns the sentence that says that no fault of the network reached the user's own servers.
    fn bypass(&self, language: Language) -> Option<String> {
        let is_bypassed = self.injected().next().is_some() && self.injected().all(|it| it.bypassed);
        is_bypassed.then(|| language.text("judge-bypassed"))
    }

    /// Returns the sentence that names the faults under which updates were lost; `None` if none
    /// were.
    pub fn lost_under(&self, language: Language) -> Option<String> {
        let lost = self.faults.iter().filter(|report| report.loses_updates());
        let faults: Vec<String> = lost.map(|report| report.title(language)).collect();
        let said = || message!("judge-lost-under", faults = language.list(&faults)).text(language);
        (!faults.is_empty()).then(said)
    }

    /// Returns what the lock leaves to its user; `None` if no fault shows it.
    pub fn leaves(&self, language: Language) -> Option<String> {
        let is_fenced = self.has_fence() && !self.faults.iter().any(FaultReport::loses_with_fence);
        if is_fenced && self.has_loss() {
            return Some(language.text("judge-leaves-fence"));
        }

        let loses =
            |fault: &Fault| self.report(fault.name()).is_some_and(FaultReport::loses_updates);
        let left = LEFT.iter().filter(|(_, faults)| faults.iter().any(loses));
        let left: Vec<String> = left.map(|(message, _)| language.text(message)).collect();
        (!left.is_empty()).then(|| language.list(&left))
    }

    /// Returns the sentence that says how sure it is that no update is lost without a fault; `None`
    /// if one was, or if the turns are too few to say it.
    fn bound(&self, language: Language) -> Option<String> {
        let none = self.report(Fault::Undisturbed.name()).filter(|report| report.ran)?;
        let percent = 100.0 * RULE_OF_THREE / none.turns as f64;
        if none.loses_updates() || percent >= 100.0 {
            return None;
        }

        // Two digits that say something, and never less than the bound.
        let digits = (1.0 - percent.log10().floor()).max(0.0);
        let unit = 10_f64.powf(digits);
        let share = format!("{:.*}", digits as usize, (percent * unit).ceil() / unit);
        Some(message!("judge-bound", turns = grouped(none.turns), share).text(language))
    }

    /// Returns the number of turns under the faults that touch the lock; without any, of those
    /// without a fault.
    fn turns(&self) -> u64 {
        let none = self.report(Fault::Undisturbed.name());
        let is_touched = self.touching().next().is_some();
        let reports = self.touching().chain(none.filter(|_| !is_touched));
        reports.map(|report| report.turns).sum()
    }

    /// Returns the verdict: `Loses updates under 3 of 11 faults`, of those that touch the lock. It
    /// counts faults, not updates: a fault that ran several times has no number of updates, and 1
    /// is no better than 100.
    pub fn verdict(&self) -> Message {
        if let Some(why) = self.not_judged().filter(|_| !self.has_loss()) {
            return why;
        }

        let (faults, others) = self.reach();
        let under = self.injected().filter(|report| report.loses_updates()).count();
        let undisturbed = self.report(Fault::Undisturbed.name()).filter(|report| report.ran);

        let turns = grouped(self.turns());
        let counted = message!("judge-verdict-nothing", faults, under, others, turns);
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

    /// Returns the sentence that says why the lock is not judged: it kept faults from running, or
    /// no client got it any more after some. `None` if neither is so.
    fn not_judged(&self) -> Option<Message> {
        let faults = self.faults.len().saturating_sub(1);
        match (self.prevented().count(), self.stopped().count()) {
            (0, 0) => None,
            (0, stopped) => Some(message!("judge-verdict-stopped", stopped)),
            (prevented, _) => Some(message!("judge-verdict-prevented", prevented, faults)),
        }
    }

    /// Returns the verdict as it is shown: first that it is none, if the lock stopped; of a lock
    /// with fences both halves, what it does with a store that checks them, and without. The first
    /// one that says safe names the faults that were not asked for.
    pub fn statements(&self, language: Language) -> Vec<VerdictSentence> {
        let mut statements = Vec::new();
        if let Some(why) = self.not_judged() {
            let text = why.text(language);
            statements.push(VerdictSentence { text, outcome: Outcome::NotJudged });
            if !self.has_loss() {
                return statements;
            }
        }

        let mut text = self.verdict().text(language);
        if self.has_fence() {
            statements.push(self.with_fence(language));
            let verdict = without_capital(&text);
            text = message!("judge-half-no-fence", verdict).text(language);
        }
        statements.push(VerdictSentence { text, outcome: Outcome::of(self.has_loss()) });

        let unasked: Vec<String> = self.unasked().map(|fault| fault.title(language)).collect();
        let safe = statements.iter_mut().find(|statement| statement.outcome.is_safe());
        if let Some(safe) = safe.filter(|_| !unasked.is_empty()) {
            let (verdict, count, faults) = (&safe.text, unasked.len(), language.list(&unasked));
            safe.text = message!("judge-unasked", verdict, count, faults).text(language);
        }
        statements
    }

    /// Returns the half of a verdict that says what a store does that checks the fence.
    fn with_fence(&self, language: Language) -> VerdictSentence {
        let under = |is_found: fn(&FaultReport) -> bool| {
            let found = self.faults.iter().filter(|report| is_found(report));
            found.map(|report| report.title(language)).collect::<Vec<_>>()
        };
        let lost = under(FaultReport::loses_with_fence);
        let back = under(|report| report.fence_regressions > 0);
        let misorders = self.faults.iter().any(FaultReport::misorders_fences);
        let message = match (lost.as_slice(), back.as_slice()) {
            ([], []) => Message::new("judge-half-fence-safe"),
            ([], _) if misorders => Message::new("judge-half-fence-misordered"),
            ([], back) => message!("judge-half-fence-back", faults = language.list(back)),
            (lost, _) => message!("judge-half-fence-lost", faults = language.list(lost)),
        };
        let outcome = match lost.is_empty() {
            true if misorders => Outcome::FencesBack,
            is_safe => Outcome::of(!is_safe),
        };
        VerdictSentence { text: message.text(language), outcome }
    }
}

/// Returns a sentence as it goes on after a colon.
pub(crate) fn without_capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
