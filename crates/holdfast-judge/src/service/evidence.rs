//! The two requests that show a finding: their statements side by side, with the values that are not
//! the service's secrets.

use std::collections::BTreeMap;

use holdfast_services::{Exchange, Statement};

use super::buyers::Attempt;
use super::pass::{Load, Pass};
use super::pattern::{Pattern, Step};
use super::report::{Evidence, Imbalance, KILLED, NO_ANSWER, STOPPED, StatementReport};
use super::run::{Run, Struck};
use super::stage::Stage;
use super::watch::{Access, access};

/// Statements that are shown of the requests: those that matter most.
const MAX_STATEMENTS: usize = 10;
/// Characters of a statement.
const MAX_CHARS: usize = 300;
/// Numbers of so many digits are shown, as no secret fits into them.
const SHOWN_DIGITS: usize = 2;

/// Returns the orders of a run that is to show what a pass has found: two requests alone.
pub(super) fn load(pass: Pass, found: &[Imbalance]) -> Load {
    match pass {
        // The same order twice; if it is sold twice, there must be two units.
        Pass::Retry | Pass::LostAnswer => {
            let units = if found.contains(&Imbalance::Oversold) { 1 } else { 2 };
            Load { units, attempts: 1, buyers: 1 }
        }
        Pass::Control => Load { units: 1, attempts: 2, buyers: 1 },
        _ => Load { units: 1, attempts: 2, buyers: 2 },
    }
}

/// Returns what a run of two requests shows; `None` if it has not found what the pass has.
pub(super) fn of(
    stage: &Stage<'_>,
    pass: Pass,
    found: &[Imbalance],
    run: &Run,
) -> Option<Evidence> {
    let shows = run.figures.found();
    if !found.iter().any(|imbalance| shows.contains(imbalance)) {
        return None;
    }

    let requests = requests(run);
    let mut steps: Vec<(u8, Step, StatementReport)> = Vec::new();
    let began = requests.iter().map(|request| request.sent_us).min().unwrap_or_default();
    for seen in &run.seen {
        let of_instance = |request: &&Request| request.instance == seen.instance;
        let Some(request) = requests.iter().find(of_instance) else { continue };
        let is_within = seen.exchange.sent_us >= request.sent_us;
        for statement in seen.exchange.statements.iter().filter(|_| is_within) {
            let shown = Shown { stage, run, request, began };
            steps.extend(shown.step(seen.instance, &seen.exchange, statement));
        }
    }

    // The least important ones go first, of these the latest.
    while steps.len() > MAX_STATEMENTS
        && let Some(least) = steps.iter().map(|(weight, ..)| *weight).min()
        && let Some(place) = steps.iter().rposition(|(weight, ..)| *weight == least)
    {
        steps.remove(place);
    }
    steps.sort_by(|(_, _, one), (_, _, other)| one.sent_ms.total_cmp(&other.sent_ms));

    let lease_ms = stage.file.service.lease_ms;
    let outlives = lease_ms.is_some_and(|lease_ms| is_read_after(lease_ms, &steps));
    let pattern = match Pattern::of(pass, found, steps.iter().map(|(_, step, _)| step)) {
        Pattern::ReadThenWrite | Pattern::CheckThenDecrement if outlives => Pattern::LeaseOutlived,
        Pattern::Unknown if steps.is_empty() => return None,
        pattern => pattern,
    };
    let mut statements: Vec<_> = steps.into_iter().map(|(.., statement)| statement).collect();
    if let Some(Struck { instance, at_us }) = run.struck {
        statements.extend(mark(pass, &requests, instance, at_us.saturating_sub(began)));
        statements.sort_by(|one, other| one.sent_ms.total_cmp(&other.sent_ms));
    }

    let message = pattern.message(run.figures.sold, run.figures.opening);
    Some(Evidence {
        under: pass.name().to_owned(),
        pattern,
        summary: message.english(),
        message: Some(message),
        statements,
    })
}

/// Returns whether one request read the stock only when the lease of the other was over: the gate is
/// held for longer, too.
fn is_read_after(lease_ms: u64, steps: &[(u8, Step, StatementReport)]) -> bool {
    let mut first_reads = BTreeMap::new();
    for (_, step, report) in steps.iter().filter(|(_, it, _)| it.access == Some(Access::Read)) {
        first_reads.entry(step.instance).or_insert(report.sent_ms);
    }
    let times = || first_reads.values().copied();
    let between = times().fold(0.0, f64::max) - times().fold(f64::INFINITY, f64::min);
    // The lease of the first one had begun before it read.
    first_reads.len() > 1 && between >= 0.8 * lease_ms as f64
}

/// Says that an instance was stopped or killed.
fn mark(
    pass: Pass,
    requests: &[Request],
    instance: usize,
    after_us: u64,
) -> Option<StatementReport> {
    let request = requests.iter().find(|request| request.instance == instance)?;
    let at_ms = after_us as f64 / 1_000.0;
    let what = if pass == Pass::Kill { KILLED } else { STOPPED };
    Some(StatementReport {
        buyer: request.buyer,
        instance,
        sent_ms: at_ms,
        answered_ms: at_ms,
        sql: String::new(),
        result: what.to_owned(),
    })
}

/// A request to an instance.
struct Request {
    instance: usize,
    buyer: u64,
    key: String,
    sent_us: u64,
}

fn requests(run: &Run) -> Vec<Request> {
    let requests = run.outcomes.iter().flat_map(|outcome| {
        let Attempt { buyer, key, .. } = &outcome.attempt;
        outcome.answers.iter().map(|answered| Request {
            instance: answered.instance,
            buyer: *buyer,
            key: key.to_string(),
            sent_us: answered.sent_us,
        })
    });
    requests.collect()
}

fn names(statement: &Statement, key: &str) -> bool {
    let is_key = |value: &String| value == key;
    statement.text.contains(key) || statement.values.iter().flatten().any(is_key)
}

struct Shown<'a> {
    stage: &'a Stage<'a>,
    run: &'a Run,
    request: &'a Request,
    began: u64,
}

impl Shown<'_> {
    /// Returns a statement as it is shown, and how important it is; `None` if it says nothing of the
    /// order.
    fn step(
        &self,
        instance: usize,
        exchange: &Exchange,
        statement: &Statement,
    ) -> Option<(u8, Step, StatementReport)> {
        let access = access(&statement.text, &self.stage.learned.tables);
        let words = statement.text.split_whitespace();
        let first = words.clone().next().unwrap_or_default().to_lowercase();
        let weight = match (access, first.trim_end_matches(';')) {
            (Some(_), _) => 5,
            (None, "insert" | "update" | "delete" | "merge") => 3,
            (None, "commit" | "rollback" | "end" | "abort") => 4,
            (None, "begin" | "start") => 1,
            (None, _) if statement.text.contains("advisory") => 4,
            (None, _) if names(statement, &self.request.key) => 2,
            _ => return None,
        };

        let sql = self.with_values(&words.collect::<Vec<_>>().join(" "), statement);
        let ms = |us: u64| us.saturating_sub(self.began) as f64 / 1_000.0;
        let report = StatementReport {
            buyer: self.request.buyer,
            instance,
            sent_ms: ms(exchange.sent_us),
            answered_ms: ms(exchange.answered_us),
            sql: sql.chars().take(MAX_CHARS).collect(),
            result: self.result(statement, access),
        };
        let step = Step {
            instance,
            connection: exchange.connection,
            access,
            sql: report.sql.to_lowercase(),
            in_transaction: exchange.in_transaction,
            has_changed: statement.tag.as_deref().is_some_and(|tag| !tag.ends_with(" 0")),
        };
        Some((weight, step, report))
    }

    /// Returns the text with its values, as far as they are shown. The others are masked: of a
    /// parameter stays its number, of a value in the text nothing.
    fn with_values(&self, text: &str, statement: &Statement) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let end = match first {
                '\'' => rest[1..].find('\'').map(|at| at + 2),
                '$' => rest[1..].find(|letter: char| !letter.is_ascii_digit()).map(|at| at + 1),
                _ if is_word(first) => rest.find(|letter| !is_word(letter)),
                _ => Some(first.len_utf8()),
            };
            let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
            shown += &match first {
                '\'' if !self.is_shown(token.trim_matches('\'')) => "'…'".to_owned(),
                '0'..='9' if !self.is_shown(token) => "…".to_owned(),
                '$' => self.parameter(token, statement).unwrap_or_else(|| token.to_owned()),
                _ => token.to_owned(),
            };
            rest = after;
        }
        shown
    }

    /// Returns the value of a parameter, if it is shown.
    fn parameter(&self, name: &str, statement: &Statement) -> Option<String> {
        let number: usize = name[1..].parse().ok()?;
        match statement.values.get(number.checked_sub(1)?)? {
            None => Some("null".to_owned()),
            Some(value) if !self.is_shown(value) => None,
            Some(value) if value.parse::<i64>().is_ok() => Some(value.clone()),
            Some(value) => Some(format!("'{value}'")),
        }
    }

    /// Returns whether a value is shown: the item, a key, or a short number.
    fn is_shown(&self, value: &str) -> bool {
        let item = &self.run.item.id;
        let item = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
        let is_item = item == value;
        let is_key = self.run.outcomes.iter().any(|it| it.attempt.key.to_string() == value);
        is_item || is_key || is_short_number(value)
    }

    /// Returns what the server answered, with the columns of the stock.
    fn result(&self, statement: &Statement, access: Option<Access>) -> String {
        if let Some(error) = &statement.error {
            return format!("error: {error}");
        }
        let Some(tag) = &statement.tag else { return NO_ANSWER.to_owned() };
        let columns = &self.stage.learned.columns;
        let stock = statement.row.iter().filter(|(name, _)| columns.contains(name));
        let stock =
            stock.map(|(name, value)| format!("{name} = {}", value.as_deref().unwrap_or("null")));
        let stock = stock.collect::<Vec<_>>().join(", ");
        match (access, stock.is_empty()) {
            (Some(_), false) => stock,
            _ => tag.clone(),
        }
    }
}

fn is_short_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    (1..=SHOWN_DIGITS).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit())
}
