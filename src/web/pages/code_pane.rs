//! The code of an order, as the scheduler's page shows it: what each of its steps sends to Redis
//! and Postgres, and where the order is.

use crate::lab::interleaving::{GameRules, OrderPosition};
use crate::lab::timeline::{Detail, Value, statement};
use crate::messages::Language;
use crate::probe::Point;

/// The code of one step.
#[derive(Debug)]
pub(super) struct CodeSegment {
    pub code: String,
    /// What the step saw or wrote, once it was taken.
    pub observed: Option<String>,
    pub is_passed: bool,
    /// True if the order is paused before this step.
    pub is_next: bool,
    /// `lock`, `read`, `write` or `plain`; the color of the segment.
    pub kind: &'static str,
}

/// Returns the steps of an order: each begins at a point, and ends at the next one.
pub(super) fn code_segments(
    rules: GameRules,
    order: &OrderPosition,
    language: Language,
) -> Vec<CodeSegment> {
    let points = rules.points();
    let next = |at: usize| points.get(at + 1).copied();
    points
        .iter()
        .enumerate()
        .map(|(at, from)| {
            let to = next(at);
            let is_next = order.held == Some(*from);
            let reached = to.and_then(|to| order.event(to));
            CodeSegment {
                code: code(rules, order, (*from, to), language),
                observed: to.and_then(|to| observed(order, to, language)),
                is_passed: reached.is_some() || to.is_none() && order.result.is_some(),
                is_next,
                kind: kind(rules, to),
            }
        })
        .collect()
}

fn kind(rules: GameRules, to: Option<Point>) -> &'static str {
    match to {
        Some(Point::Held | Point::Release) if rules.has_lock() => "lock",
        Some(Point::Read) => "read",
        Some(Point::Write) => "write",
        _ => "plain",
    }
}

fn code(
    rules: GameRules,
    order: &OrderPosition,
    (from, to): (Point, Option<Point>),
    language: Language,
) -> String {
    let comment = |message: &str| format!("-- {}", language.text(message));
    let sent = to.and_then(|to| sent(rules, order, to));
    match (sent, from, to) {
        // Under autocommit, the value is computed before the statement is sent.
        (_, Point::Read, Some(Point::Commit)) => match order.last_read() {
            Some(read) => format!("-- {read} − 1 = {}", read - 1),
            None => comment("scheduler-code-compute"),
        },
        (_, Point::Write, Some(Point::Commit)) => comment("scheduler-code-uncommitted"),
        (Some(statement), ..) => statement,
        (None, Point::Write, _) => comment("scheduler-code-acknowledged"),
        (None, Point::Committed, _) => comment("scheduler-code-finish"),
        _ => comment("scheduler-code-respond"),
    }
}

/// Returns the statement whose effect the order has had at the point `to`.
fn sent(rules: GameRules, order: &OrderPosition, to: Point) -> Option<String> {
    // `commit` is sent between these two points, except under autocommit.
    let event = match to {
        Point::Committed if !rules.is_autocommit() => Point::Commit,
        Point::Committed => return None,
        to => to,
    };
    let value = order.last_read().map(|read| read - 1).filter(|_| to == Point::Write);
    let fence = order.event(Point::Held).and_then(|event| event.fence);
    let detail = Detail { value: value.map(Value::Units), fence, ..Detail::default() };
    statement(rules.strategy, event, &detail)
}

fn observed(order: &OrderPosition, to: Point, language: Language) -> Option<String> {
    let event = order.event(to)?;
    let (message, value) = match (to, event.value, event.fence) {
        (Point::Read, Some(value), _) => ("scheduler-saw", value),
        (Point::Held, _, Some(fence)) => ("scheduler-fence", fence),
        _ => return None,
    };
    Some(language.text_with(message, &[("value", value.to_string().into())]))
}
