//! The two requests that show a finding: their statements side by side, with the values that are
//! not the service's secrets.

mod choice;
mod lease;
mod masking;
mod shortening;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use holdfast_base::messages::Language;
use holdfast_services::{Exchange, Statement};

use self::choice::{Line, leave_out, weigh_failures, weigh_for, weigh_reads, weight_of_command};
use self::lease::is_lease_outlived;
use self::masking::ShownValues;
use self::shortening::without_columns;
use super::buyers::{BuyerAnswer, OrderAttempt};
use super::learned::Learned;
use super::pass::{Load, Pass};
use super::pattern::Step;
use super::report::{Imbalance, NO_ANSWER, Pattern, REDIS, ServiceEvidence, StatementReport};
use super::sale::Run;
use super::sent::SentStatements;
use super::sql::Access;
use super::stage::ServiceStage;
use super::strike::Struck;
use super::transactions::{connection_of, leave_out_restart, transactions};
use super::watch::Seen;

pub(super) use self::shortening::shortened;

/// Characters of a statement.
const MAX_CHARS: usize = 300;
/// Characters of the columns of a `select`.
const MAX_COLUMNS: usize = 60;

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

/// Returns what a run of two requests shows; `None` if it has not found what the pass has, or no
/// statement of the requests was seen.
pub(super) fn of(
    stage: &ServiceStage<'_>,
    pass: Pass,
    found: &[Imbalance],
    run: &Run,
) -> Option<ServiceEvidence> {
    let shows = run.figures.found();
    if !found.iter().any(|imbalance| shows.contains(imbalance)) {
        return None;
    }

    let requests = requests(run);
    let began = requests.iter().map(|request| request.sent_us).min().unwrap_or_default();
    let values = ShownValues::of(run);
    let mut transactions = transactions(&run.seen);
    let steps = &stage.watch.steps;
    transactions.retain(|sent| !steps.are_of_nobody(sent.iter().map(|seen| &seen.exchange)));
    if let Some(struck) = run.struck
        && matches!(pass, Pass::Kill | Pass::Restart)
    {
        let has_key = |it: &Statement| requests.iter().any(|request| names(it, &request.key));
        leave_out_restart(&mut transactions, struck, |it| names(it, &values.item) || has_key(it));
    }
    let mut lines = Vec::new();
    for (number, seen) in by_request(&requests, transactions) {
        let request = &requests[number];
        let shown =
            RequestView { learned: &stage.learned, values: &values, number, request, began };
        for statement in &seen.exchange.statements {
            lines.extend(shown.line(&seen.exchange, statement));
        }
    }
    if lines.is_empty() {
        return None;
    }
    sort(&mut lines);

    // By all of them, also those that are not shown.
    let outlives = is_lease_outlived(stage.file.service.lease_ms, pass, &lines);
    let steps: Vec<&Step> = lines.iter().map(|line| &line.step).collect();
    let pattern = Pattern::of(pass, &shows, &steps, &stage.learned, stage.file.has_lock());
    let pattern = match pattern {
        Pattern::ReadThenWrite | Pattern::CheckThenDecrement | Pattern::CheckThenInsert
            if outlives =>
        {
            Pattern::LeaseOutlived
        }
        pattern => pattern,
    };
    let decisive = pattern.decisive(&steps);

    weigh_failures(&mut lines);
    weigh_reads(&mut lines);
    weigh_for(pattern, &decisive, &mut lines);
    // The mistake is one in the statements.
    lines.extend(commands(stage, pass, &requests, run, &values));
    sort(&mut lines);
    let left_out_names = leave_out(&mut lines);
    let mut statements: Vec<_> = lines.into_iter().map(|line| line.report).collect();
    if let Some(Struck { instance, at_us }) = run.struck {
        statements.extend(mark(pass, &requests, instance, at_us.saturating_sub(began)));
        statements.sort_by(|one, other| one.sent_ms.total_cmp(&other.sent_ms));
    }

    let message = pattern.message(run.figures.sold, run.figures.opening);
    Some(ServiceEvidence {
        under: pass.name().to_owned(),
        pattern,
        summary: message.english(),
        message: Some(message),
        statements,
        left_out: NonZeroUsize::new(left_out_names.len()),
        left_out_names,
    })
}

fn sort(lines: &mut [Line]) {
    lines.sort_by(|one, other| one.report.sent_ms.total_cmp(&other.report.sent_ms));
}

/// Returns the commands of the requests to Redis, if each request has an instance for itself: those
/// that name the order. Only in schedules it is known that others are not a job's.
fn commands(
    stage: &ServiceStage<'_>,
    pass: Pass,
    requests: &[BuyerRequest],
    run: &Run,
    values: &ShownValues,
) -> Vec<Line> {
    let instances: BTreeSet<usize> = requests.iter().map(|request| request.instance).collect();
    if instances.len() < requests.len() {
        return Vec::new();
    }

    let began = requests.iter().map(|request| request.sent_us).min().unwrap_or_default();
    let mut lines = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let shown = RequestView { learned: &stage.learned, values, number, request, began };
        let times = request.sent_us..request.until_us;
        let is_own = |seen: &&Seen| {
            let Seen { instance, exchange } = seen;
            let is_named = exchange.statements.iter().any(|it| shown.is_of_order(it));
            let is_known =
                pass == Pass::Interleavings && !stage.watch.steps.are_of_nobody([exchange]);
            *instance == request.instance
                && times.contains(&exchange.sent_us)
                && (is_named || is_known)
        };
        let own: Vec<&Exchange> =
            run.commands.iter().filter(is_own).map(|seen| &seen.exchange).collect();
        for (place, exchange) in own.iter().enumerate() {
            // Of a command that is repeated, the last time shows the result.
            let is_asked_again = own.get(place + 1).is_some_and(|next| {
                SentStatements::of([*next]).repeats(&SentStatements::of([*exchange]))
            });
            if !is_asked_again {
                let commands = exchange.statements.iter();
                lines.extend(commands.filter_map(|command| shown.command(exchange, command)));
            }
        }
    }
    lines
}

/// Says what struck an instance, or Redis.
fn mark(
    pass: Pass,
    requests: &[BuyerRequest],
    instance: usize,
    after_us: u64,
) -> Option<StatementReport> {
    let request = requests.iter().find(|request| request.instance == instance)?;
    let at_ms = after_us as f64 / 1_000.0;
    Some(StatementReport {
        buyer: request.buyer,
        instance: instance + 1,
        sent_ms: at_ms,
        answered_ms: at_ms,
        sql: String::new(),
        result: pass.mark(Language::English),
        decisive: false,
    })
}

/// A request to an instance.
struct BuyerRequest {
    instance: usize,
    buyer: u64,
    key: String,
    sent_us: u64,
    /// Never, if there was no answer: it may be at work for longer.
    answered_us: u64,
    /// Statements sent from then on belong to another request.
    until_us: u64,
}

fn requests(run: &Run) -> Vec<BuyerRequest> {
    let requests = run.outcomes.iter().flat_map(|outcome| {
        let OrderAttempt { buyer, key, .. } = &outcome.attempt;
        // The third time that an order is sent only repeats the first.
        let third = outcome.answers.get(2).map(|answered| answered.sent_us);
        outcome.answers.iter().take(2).map(move |answered| BuyerRequest {
            instance: answered.instance,
            buyer: *buyer,
            key: key.to_string(),
            sent_us: answered.sent_us,
            answered_us: match answered.answer {
                BuyerAnswer::Unknown(_) => u64::MAX,
                _ => answered.answered_us,
            },
            until_us: third.unwrap_or(u64::MAX),
        })
    });
    requests.collect()
}

/// Returns the exchanges of the requests, each with the number of its request.
fn by_request<'a>(
    requests: &[BuyerRequest],
    transactions: Vec<Vec<&'a Seen>>,
) -> Vec<(usize, &'a Seen)> {
    let mut found = Vec::new();
    let mut last_requests = BTreeMap::new();
    for transaction in transactions {
        let Some(number) = request_of(&transaction, requests, &last_requests) else { continue };
        last_requests.insert(connection_of(transaction[0]), number);
        found.extend(transaction.into_iter().map(|seen| (number, seen)));
    }
    found
}

/// Returns the number of the request to which a transaction belongs. If both are at one instance,
/// it is the one whose key the transaction names; else one that is not answered yet; else the last
/// one on the same connection; else one that has none yet.
///
/// What is not known: without keys, which of the two buyers a connection serves at first; and of a
/// statement without a key and outside of a transaction, whether its connection has changed hands.
fn request_of(
    transaction: &[&Seen],
    requests: &[BuyerRequest],
    last_requests: &BTreeMap<(usize, u64), usize>,
) -> Option<usize> {
    let Seen { instance, exchange: first } = transaction.first()?;
    let statements = || transaction.iter().flat_map(|seen| &seen.exchange.statements);
    let last = last_requests.get(&(*instance, first.connection));

    let possible = requests.iter().enumerate().filter(|(_, request)| {
        let times = request.sent_us..request.until_us;
        request.instance == *instance && times.contains(&first.sent_us)
    });
    let best = possible.min_by_key(|(number, request)| {
        let is_named = statements().any(|statement| names(statement, &request.key));
        let is_answered = request.answered_us <= first.sent_us;
        let is_last = last == Some(number);
        let has_another = last_requests.values().any(|other| other == number);
        (!is_named, is_answered, !is_last, has_another)
    });
    best.map(|(number, _)| number)
}

/// Returns whether a value is among those of a statement, as a whole word.
fn names(statement: &Statement, value: &str) -> bool {
    let is_in = |text: &str| {
        let mut words = text.split(|letter: char| !(letter.is_alphanumeric() || letter == '-'));
        words.any(|word| word == value)
    };
    is_in(&statement.text) || statement.values.iter().flatten().any(|it| is_in(it))
}

struct RequestView<'a> {
    learned: &'a Learned,
    values: &'a ShownValues,
    number: usize,
    request: &'a BuyerRequest,
    began: u64,
}

impl RequestView<'_> {
    /// Returns a statement as it is shown, and how important it is; `None` if it says nothing of
    /// the order.
    fn line(&self, exchange: &Exchange, statement: &Statement) -> Option<Line> {
        let access = self.learned.access(&statement.text);
        let has_key = names(statement, &self.request.key);
        let sql = without_columns(&self.values.of_statement(statement), MAX_COLUMNS);
        let first = sql.split(' ').next().unwrap_or_default().to_lowercase();
        let weight = match (access, first.trim_end_matches(';')) {
            (Some(_), _) => 5,
            (None, "insert" | "update" | "delete" | "merge") if self.is_of_order(statement) => 3,
            (None, "insert" | "update" | "delete" | "merge") => 1,
            (None, "commit" | "rollback" | "end" | "abort") => 4,
            (None, "begin" | "start") => 1,
            (None, _) if statement.text.contains("advisory") => 4,
            (None, _) if has_key => 2,
            _ => return None,
        };
        // It has neither read nor written, as one that waited too long for its lock.
        let has_failed = statement.error.is_some();
        let weight = if has_failed { weight.min(1) } else { weight };

        let report = self.report(exchange, &sql, self.result(statement, access));
        let step = Step {
            request: self.number,
            connection: exchange.connection,
            access: access.filter(|_| !has_failed),
            has_key,
            sql: sql.to_lowercase(),
            in_transaction: exchange.in_transaction,
            has_changed: statement.tag.as_deref().is_some_and(|tag| !tag.ends_with(" 0")),
        };
        Some(Line { weight, step, report, has_failed })
    }

    /// Returns a command to Redis as it is shown; `None` if it has nothing to do with the order.
    fn command(&self, exchange: &Exchange, command: &Statement) -> Option<Line> {
        let weight = weight_of_command(&command.text)?;
        let has_failed = command.error.is_some();
        let sql = format!("{REDIS}{}", self.values.of_command(command));
        let report = self.report(exchange, &sql, self.values.of_answer(command));
        let step = Step {
            request: self.number,
            connection: exchange.connection,
            access: None,
            has_key: names(command, &self.request.key),
            sql,
            in_transaction: false,
            has_changed: false,
        };
        let weight = if has_failed { weight.min(1) } else { weight };
        Some(Line { weight, step, report, has_failed })
    }

    fn report(&self, exchange: &Exchange, sql: &str, result: String) -> StatementReport {
        let ms = |us: u64| us.saturating_sub(self.began) as f64 / 1_000.0;
        StatementReport {
            buyer: self.request.buyer,
            instance: self.request.instance + 1,
            sent_ms: ms(exchange.sent_us),
            answered_ms: ms(exchange.answered_us),
            sql: shortened(sql, MAX_CHARS),
            result,
            decisive: false,
        }
    }

    fn is_of_order(&self, statement: &Statement) -> bool {
        names(statement, &self.request.key) || names(statement, &self.values.item)
    }

    /// Returns what the server answered, with the columns of the stock.
    fn result(&self, statement: &Statement, access: Option<Access>) -> String {
        if let Some(error) = &statement.error {
            return format!("error: {}", self.values.of_error(error, statement));
        }
        let Some(tag) = &statement.tag else { return NO_ANSWER.to_owned() };
        let columns = &self.learned.columns;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(connection: u64, sent_us: u64, sql: &str, in_transaction: bool) -> Seen {
        let mut exchange = Exchange::default();
        exchange.connection = connection;
        exchange.sent_us = sent_us;
        exchange.in_transaction = in_transaction;
        exchange.statements = vec![Statement { text: sql.into(), ..Statement::default() }];
        Seen { instance: 0, exchange }
    }

    fn request(key: &str, sent_us: u64, answered_us: u64) -> BuyerRequest {
        BuyerRequest { instance: 0, buyer: 1, key: key.into(), sent_us, answered_us, until_us: 90 }
    }

    fn numbers(requests: &[BuyerRequest], seen: &[Seen]) -> Vec<(usize, u64)> {
        let found = by_request(requests, transactions(seen)).into_iter();
        found.map(|(number, seen)| (number, seen.exchange.sent_us)).collect()
    }

    #[test]
    fn requests_at_one_instance_have_their_own_statements() {
        const READ: &str = "select stock from goods";
        let both = [request("a", 10, u64::MAX), request("b", 10, 80)];
        // By the key, also of a transaction that names it at its end.
        let keys = [
            seen(1, 11, "select 1 from orders where key = 'b'", false),
            seen(1, 12, READ, true),
            seen(2, 13, READ, true),
            seen(1, 14, "insert into sales values ('a')", true),
            seen(1, 15, "commit", false),
            seen(2, 16, "insert into sales values ('b')", true),
            seen(3, 95, READ, false),
        ];
        assert_eq!(numbers(&both, &keys), [(1, 11), (0, 12), (0, 14), (0, 15), (1, 13), (1, 16)]);
        // By the connection, also if both have one key.
        let same = [request("a", 10, 80), request("a", 10, 80)];
        let key = "select 1 from orders where key = 'a'";
        let connections = [
            seen(2, 11, key, false),
            seen(1, 12, key, false),
            seen(1, 13, READ, true),
            seen(2, 14, READ, false),
        ];
        assert_eq!(numbers(&same, &connections), [(0, 11), (1, 12), (1, 13), (0, 14)]);
        // One after the other, on one connection.
        let order = [request("a", 10, 20), request("b", 20, 30)];
        let alone = [seen(1, 11, READ, false), seen(1, 21, READ, false)];
        assert_eq!(numbers(&order, &alone), [(0, 11), (1, 21)]);
    }

    #[test]
    fn statement_that_has_failed_reads_nothing() {
        let values = ShownValues { item: "tea".to_owned(), keys: Vec::new() };
        let learned = Learned { tables: vec!["goods".to_owned()], ..Learned::default() };
        let request = request("a", 10, 80);
        let (learned, values, request) = (&learned, &values, &request);
        let shown = RequestView { learned, values, number: 0, request, began: 10 };
        let line = |error: Option<&str>| {
            let mut exchange = seen(1, 11, "select stock from goods", true).exchange;
            exchange.statements[0].error = error.map(str::to_owned);
            let line = shown.line(&exchange, &exchange.statements[0]).unwrap();
            (line.weight, line.step.access)
        };
        assert_eq!(line(None), (5, Some(Access::Read)));
        assert_eq!(line(Some("canceling statement due to lock timeout")), (1, None));
    }
}
