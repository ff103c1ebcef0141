//! What the judge says of a service: what `holdfast judge service --json` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use holdfast_base::messages::{Language, Message};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::pass::Pass;
use crate::demands::{Finding, Found, Judged};

/// Milliseconds after which a statement counts as one that has waited.
const WAITED_MS: f64 = 20.0;
/// Passes in which an order is sent more than once.
const SENT_AGAIN: [&str; 2] = ["retry", "lost-answer"];
/// The result of a statement that was not answered.
pub(super) const NO_ANSWER: &str = "no answer";
/// Prefix of a command to Redis among statements.
pub(super) const REDIS: &str = "redis ";

/// The judgement of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceJudgement {
    pub service: ServiceName,
    /// One entry per pass, in the order in which they ran; `control` is the first.
    pub passes: Vec<PassReport>,
    /// No pass that ran has found anything, and one has run.
    pub sound: bool,
    pub seed: u64,
    /// When the judgement began: RFC 3339, UTC.
    #[serde(default)]
    pub started_at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceName {
    pub name: String,
    pub instances: usize,
}

/// The runs of a pass. Its figures are those of one run: of the first one that has found something,
/// else of the first one; of a search, those of its shortest schedule that has, else of the last.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PassReport {
    pub name: String,
    /// If not, all figures are zero; unless something was found although its fault struck nothing.
    pub ran: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The same with its values, to be said in another language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not_message: Option<Message>,
    /// Number of times that its fault struck, in all runs.
    pub hits: u32,
    pub runs: u32,
    /// Runs that have found something.
    pub lost_in: u32,
    /// They ran a recorded schedule again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay: bool,
    /// Schedules of at most two switches for which there was no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried: Option<NonZeroUsize>,
    #[serde(flatten)]
    pub figures: Figures,
    pub evidence: Vec<ServiceEvidence>,
}

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Orders, each with a key of its own, however often it was sent.
    pub attempts: u64,
    /// Keys that were answered *sold*.
    pub sold: u64,
    pub sold_out: u64,
    /// Keys without an answer.
    pub unknown: u64,
    /// Keys with an answer that is neither *sold* nor *sold out*, perhaps among others.
    pub errors: u64,
    /// One of these answers; without errors, why an order has no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The books name no keys: `lost` and `doubled` come from the number of orders.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_count: bool,
    /// Units before the first order.
    pub opening: i64,
    /// Units after the last one.
    pub stock: i64,
    /// Units in the books' orders.
    pub books_sold: i64,
    /// Units answered *sold*, or in the books, beyond the opening stock.
    pub oversold: i64,
    /// Opening stock − stock − units in the books.
    pub drift: i64,
    /// Keys answered *sold* that are not in the books.
    pub lost: i64,
    /// Keys with more than one order; or orders beyond one of each key that may have one.
    pub doubled: i64,
    /// The longest time without a sale while units were left.
    pub gap_ms: u64,
    pub p99_ms: u64,
}

/// A balance that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Imbalance {
    Oversold,
    Drift,
    Lost,
    Doubled,
}

impl Imbalance {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl ServiceJudgement {
    /// Returns the orders of all runs. The figures may be those of anybody's file.
    pub fn orders(&self) -> u64 {
        let ran = self.passes.iter().filter(|pass| pass.ran);
        let orders = ran.map(|pass| pass.figures.attempts.saturating_mul(pass.runs.into()));
        orders.fold(0, u64::saturating_add)
    }

    /// Returns whether orders were sent again, and none is doubled as far as their number shows.
    pub fn counts_doubled(&self) -> bool {
        self.passes.iter().any(|pass| {
            let Figures { by_count, doubled, .. } = pass.figures;
            pass.ran && by_count && doubled == 0 && SENT_AGAIN.contains(&pass.name.as_str())
        })
    }

    /// Returns the passes whose finding two requests alone did not show, as far as it is known: a
    /// mistake that another pass has shown is not shown again.
    pub fn not_shown(&self) -> Vec<&PassReport> {
        let shown = || self.passes.iter().flat_map(|pass| &pass.evidence);
        let is_anything_shown = shown().next().is_some();
        // Nothing else is shown of keys with more than one order.
        let is_key_shown = shown().any(|evidence| evidence.pattern == Pattern::KeyNotUnique);
        let is_missing = |pass: &&PassReport| {
            let is_key_missing = pass.figures.doubled != 0 && !is_key_shown;
            let is_found = pass.lost_in > 0 && pass.evidence.is_empty();
            is_found && (is_key_missing || !is_anything_shown)
        };
        self.passes.iter().filter(is_missing).collect()
    }
}

impl PassReport {
    /// Returns its columns, of which the balances come first. With schedules the figures are those
    /// of two orders alone: what depends on chance is left out.
    pub fn columns(&self) -> Vec<(&'static str, Option<i64>)> {
        let Figures { attempts, sold, books_sold, .. } = self.figures;
        let Figures { unknown, errors, p99_ms, gap_ms, .. } = self.figures;
        let balances = Imbalance::VARIANTS.iter().map(|it| (it.name(), self.figures.of(*it)));
        let orders = [("orders", attempts.cast_signed()), ("sold", sold.cast_signed())];
        let by_chance =
            [("unknown", unknown), ("errors", errors), ("p99", p99_ms), ("gap", gap_ms)];

        let is_shown = !self.has_schedules();
        let by_chance = by_chance.map(|(name, it)| (name, is_shown.then_some(it.cast_signed())));
        let others = balances.chain(orders).chain([("books", books_sold)]);
        others.map(|(name, figure)| (name, Some(figure))).chain(by_chance).collect()
    }

    /// Returns whether each of its runs is a schedule of two orders.
    pub fn has_schedules(&self) -> bool {
        self.name == Pass::Interleavings.name()
    }

    /// Returns whether orders have strange answers, or none, that nothing was struck for.
    pub fn has_strange_answers(&self) -> bool {
        let pass = self.name.parse::<Pass>().ok();
        let Figures { errors, unknown, .. } = self.figures;
        // An order that is under way then fails, or a program says that it did.
        let fails = pass.is_some_and(Pass::is_aimed);
        let is_silent = pass.is_some_and(Pass::strikes);
        (errors > 0 && !fails) || (unknown > 0 && !is_silent)
    }
}

impl Judged for ServiceJudgement {
    fn name(&self) -> &str {
        &self.service.name
    }

    fn parts(&self) -> Vec<(&str, bool)> {
        self.passes.iter().map(|pass| (pass.name.as_str(), pass.ran)).collect()
    }

    fn found(&self) -> Vec<Found> {
        let found = self.passes.iter().flat_map(|pass| {
            let found = pass.figures.found().into_iter();
            found.map(|it| Found { under: pass.name.clone(), what: Finding::Lost(it.name()) })
        });
        found.collect()
    }

    /// If no other pass has run than one buyer after the other.
    fn undecided(&self) -> Option<String> {
        let mut others = self.passes.iter().skip(1).peekable();
        let has_run = others.peek().is_none() || others.any(|pass| pass.ran);
        (!has_run).then(|| "none of the passes that were asked for has run".to_owned())
    }
}

impl Figures {
    pub fn of(&self, imbalance: Imbalance) -> i64 {
        match imbalance {
            Imbalance::Oversold => self.oversold,
            Imbalance::Drift => self.drift,
            Imbalance::Lost => self.lost,
            Imbalance::Doubled => self.doubled,
        }
    }

    /// Returns what the run has found.
    pub fn found(&self) -> Vec<Imbalance> {
        Imbalance::VARIANTS.iter().copied().filter(|it| self.of(*it) != 0).collect()
    }
}

/// A known mistake.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Pattern {
    /// Nothing looks at the stock.
    NoCheck,
    /// It writes what it has computed from what it read.
    ReadThenWrite,
    /// It subtracts in the statement, from a stock that it has read before.
    CheckThenDecrement,
    /// It counts what was taken, and then adds its own.
    CheckThenInsert,
    /// It has read the stock, in another transaction than it writes in.
    CheckElsewhere,
    /// An order is accepted although it takes no unit.
    OrderWithoutUnit,
    /// The stock and the order are written in two transactions.
    TwoTransactions,
    /// A lock of the session is released in the transaction that writes.
    ReleasedBeforeCommit,
    /// The work outlives the lease of the lock.
    LeaseOutlived,
    /// Nothing keeps a key unique.
    KeyNotUnique,
    /// None of these is seen in the statements.
    Unknown,
}

/// Two orders that show how it came to what a pass has found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceEvidence {
    /// Name of the pass in which two requests alone have shown it.
    pub under: String,
    pub pattern: Pattern,
    pub summary: String,
    /// The same with its values, to be said in another language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// By the time at which they were sent.
    pub statements: Vec<StatementReport>,
    /// Number of further ones, and a short name of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<NonZeroUsize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_names: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StatementReport {
    /// Number of the buyer whose order it belongs to.
    pub buyer: u64,
    /// Counted from 1.
    pub instance: usize,
    /// Milliseconds since the first order was sent.
    pub sent_ms: f64,
    pub answered_ms: f64,
    /// Empty where something was struck. A command to Redis begins with `redis`.
    pub sql: String,
    /// The answer of the server: its command tag, or its error, and of a row the columns of the
    /// stock. Or the struck process.
    pub result: String,
    /// It decides: an order has acted on what it read here, or here it wrote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decisive: bool,
}

impl ServiceEvidence {
    /// Says what the mark of some statements means, and which ones are not shown.
    pub fn notes_in(&self, language: Language) -> Vec<String> {
        let has_marks = self.statements.iter().any(|statement| statement.decisive);
        let legend = has_marks.then(|| language.text("service-decisive-legend"));
        legend.into_iter().chain(self.left_out_in(language)).collect()
    }

    fn left_out_in(&self, language: Language) -> Option<String> {
        if self.left_out_names.is_empty() {
            return None;
        }

        let mut counts = BTreeMap::new();
        for name in &self.left_out_names {
            *counts.entry(name).or_insert(0) += 1;
        }
        let names = counts.into_iter().map(|(name, count)| match count {
            1 => name.clone(),
            _ => format!("{name} ×{count}"),
        });
        let names = language.list(&names.collect::<Vec<_>>());
        Some(language.text_with("service-left-out", &[("names", names.into())]))
    }

    /// Returns what to do about it, also about a lock in Redis that did not help.
    pub fn cure_in(&self, language: Language) -> String {
        let cure = self.pattern.cure(language);
        if !self.has_redis_lock() {
            return cure;
        }
        let of_lock = language.text("service-cure-redis-lock");
        format!("{cure}{}{of_lock}", language.space())
    }

    /// Returns whether both requests have set one key in Redis before they read the stock, and the
    /// judge has not taken it from them.
    fn has_redis_lock(&self) -> bool {
        let is_lost = self.under.parse::<Pass>().is_ok_and(Pass::strikes_redis);
        let is_race = matches!(
            self.pattern,
            Pattern::ReadThenWrite
                | Pattern::CheckThenDecrement
                | Pattern::CheckThenInsert
                | Pattern::CheckElsewhere
        );
        if is_lost || !is_race {
            return false;
        }

        let mut requests_of: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for statement in &self.statements {
            let request = statement.request();
            let read = self.statements.iter().find(|it| it.decisive && it.request() == request);
            if let Some(key) = statement.lock_key()
                && read.is_some_and(|read| statement.sent_ms < read.sent_ms)
            {
                requests_of.entry(key).or_default().insert(request);
            }
        }
        requests_of.values().any(|requests| requests.len() > 1)
    }

    /// Returns how long a statement has waited for its answer: if that took long, or if another
    /// one was sent before the answer, as then it matters which came first.
    pub fn waited_ms(&self, statement: &StatementReport) -> Option<f64> {
        let StatementReport { sent_ms, answered_ms, .. } = *statement;
        let is_meanwhile = |other: &StatementReport| {
            !other.sql.is_empty() && sent_ms < other.sent_ms && other.sent_ms < answered_ms
        };
        let took = answered_ms - sent_ms;
        let has_waited = took >= WAITED_MS || self.statements.iter().any(is_meanwhile);
        has_waited.then_some(took)
    }
}

impl StatementReport {
    fn request(&self) -> (u64, usize) {
        (self.buyer, self.instance)
    }

    /// Returns the key of a command to Redis that may take a lock, if all of it is shown.
    fn lock_key(&self) -> Option<&str> {
        let mut words = self.sql.strip_prefix(REDIS)?.split(' ');
        let key = match words.next()? {
            "SET" | "SETNX" => words.next(),
            // Behind the script, which may do anything, and the number of its keys.
            name if name.starts_with("EVAL") => {
                words.nth(2).filter(|key| key.to_lowercase().contains("lock"))
            }
            _ => None,
        };
        key.filter(|key| !key.contains('…'))
    }

    /// Returns the result; that of the server as it stands.
    pub fn result_in(&self, language: Language) -> String {
        let is_mark =
            |pass: &&Pass| self.sql.is_empty() && pass.mark(Language::English) == self.result;
        match (Pass::ALL.iter().find(is_mark), self.result.as_str()) {
            (Some(pass), _) => pass.mark(language),
            (None, NO_ANSWER) => language.text("service-no-answer"),
            (None, result) => result.to_owned(),
        }
    }
}
