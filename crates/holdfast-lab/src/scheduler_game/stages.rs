//! What an order does between two points, the same for all orders of a strategy: data for the
//! page, and for a game without a server.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rules::{Levels, is_autocommit, levels, playable, points};
use crate::timeline::statement;
use holdfast_base::messages::{Language, MessagePart};
use holdfast_lock::fenced::FENCES_PER_GRANT;
use holdfast_shop::Strategy;
use holdfast_shop::probe::Point;
use holdfast_shop::strategy::WriteGuard;
use holdfast_story::Detail;

/// The data with which a page draws games, in one language.
#[derive(Debug, Serialize)]
pub struct GameCatalogue {
    language: &'static str,
    #[serde(flatten)]
    levels: &'static Levels,
    strategies: BTreeMap<&'static str, StrategyRules>,
    /// Number of fences that a lease reserves.
    fences_per_lease: i64,
    texts: BTreeMap<&'static str, &'static [MessagePart]>,
}

#[derive(Debug, Serialize)]
struct StrategyRules {
    /// The comparison of a write with the row.
    guard: WriteGuard,
    has_lock: bool,
    stages: Vec<OrderStage>,
}

/// A part of an order's way, from one point to the next.
#[derive(Debug, Serialize)]
struct OrderStage {
    /// The point at which the order is paused before it.
    at: Point,
    next: NextAction,
    kind: StageKind,
    #[serde(flatten)]
    code: StageCode,
}

/// The next action of an order at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextAction {
    Lock,
    Read,
    Compute,
    /// It finds nothing in stock.
    SoldOut,
    Write,
    /// Sends the statement that commits itself.
    WriteCommit,
    /// Receives the confirmation of that statement.
    Acknowledge,
    Prepare,
    Commit,
    Unlock,
    Finish,
    Respond,
}

/// The color of a stage.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StageKind {
    Lock,
    Read,
    Write,
    Plain,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StageCode {
    /// A statement to Redis or Postgres: `$2` is the new stock, `$4` the fence.
    Statement(String),
    Comment(StageComment),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StageComment {
    Compute,
    Uncommitted,
    Acknowledged,
    Finish,
    Respond,
}

impl GameCatalogue {
    /// Returns the catalogue with the texts whose ids begin with one of `prefixes`.
    pub fn new(language: Language, prefixes: &[&str]) -> Self {
        let strategies = playable().iter().map(|it| (it.name, StrategyRules::of(it)));
        Self {
            language: language.tag(),
            levels: levels(),
            strategies: strategies.collect(),
            fences_per_lease: FENCES_PER_GRANT,
            texts: language.parts(prefixes),
        }
    }
}

impl StrategyRules {
    fn of(strategy: &Strategy) -> Self {
        Self { guard: strategy.guard, has_lock: strategy.lock.is_some(), stages: stages(strategy) }
    }
}

fn stages(strategy: &Strategy) -> Vec<OrderStage> {
    let points = points(strategy);
    let stage = |(number, at): (usize, &Point)| {
        let to = points.get(number + 1).copied();
        OrderStage {
            at: *at,
            next: next_action(strategy, *at, None),
            kind: kind(strategy, to),
            code: code(strategy, *at, to),
        }
    };
    points.iter().enumerate().map(stage).collect()
}

/// Returns what an order does next at a point, where it has last read this.
pub(super) fn next_action(strategy: &Strategy, at: Point, read: Option<i64>) -> NextAction {
    let autocommit = is_autocommit(strategy);
    let has_lock = strategy.lock.is_some();
    match at {
        // It writes nothing.
        Point::Read if read.is_some_and(|read| read < 1) => NextAction::SoldOut,
        Point::Wait if has_lock => NextAction::Lock,
        Point::Wait | Point::Held => NextAction::Read,
        Point::Read if autocommit => NextAction::Compute,
        Point::Commit if autocommit => NextAction::WriteCommit,
        Point::Write if autocommit => NextAction::Acknowledge,
        Point::Read => NextAction::Write,
        Point::Write => NextAction::Prepare,
        Point::Commit => NextAction::Commit,
        Point::Committed if has_lock => NextAction::Unlock,
        Point::Committed => NextAction::Finish,
        // No playable strategy passes the last ones.
        Point::Release | Point::Claimed | Point::Expire | Point::Delete | Point::Deducted => {
            NextAction::Respond
        }
    }
}

fn kind(strategy: &Strategy, to: Option<Point>) -> StageKind {
    match to {
        Some(Point::Held | Point::Release) if strategy.lock.is_some() => StageKind::Lock,
        Some(Point::Read) => StageKind::Read,
        Some(Point::Write) => StageKind::Write,
        _ => StageKind::Plain,
    }
}

fn code(strategy: &Strategy, at: Point, to: Option<Point>) -> StageCode {
    let comment = match (at, to) {
        // Under autocommit, the value is computed before the statement is sent.
        (Point::Read, Some(Point::Commit)) => StageComment::Compute,
        (Point::Write, Some(Point::Commit)) => StageComment::Uncommitted,
        _ => match to.and_then(|to| sent(strategy, to)) {
            Some(statement) => return StageCode::Statement(statement),
            None if at == Point::Write => StageComment::Acknowledged,
            None if at == Point::Committed => StageComment::Finish,
            None => StageComment::Respond,
        },
    };
    StageCode::Comment(comment)
}

/// Returns the statement whose effect an order has had at the point `to`.
fn sent(strategy: &Strategy, to: Point) -> Option<String> {
    // `commit` is sent between these two points, except under autocommit.
    let event = match to {
        Point::Committed if is_autocommit(strategy) => return None,
        Point::Committed => Point::Commit,
        to => to,
    };
    statement(strategy, event, &Detail::default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn stages_of_a_lock_show_its_commands() {
        let catalogue = GameCatalogue::new(Language::English, &["scheduler-"]);
        let catalogue: Value = serde_json::to_value(catalogue).unwrap();
        let fenced = &catalogue["strategies"]["fenced"];
        assert_eq!(fenced["guard"], "version-and-fence");
        let stages = fenced["stages"].as_array().unwrap();
        let points: Vec<&Value> = stages.iter().map(|stage| &stage["at"]).collect();
        assert_eq!(points, ["wait", "held", "read", "commit", "write", "committed", "release"]);
        assert_eq!(
            stages[2],
            json!({
                "at": "read", "next": "compute", "kind": "plain", "comment": "compute",
            })
        );
        assert_eq!(
            (&stages[3]["kind"], &stages[3]["next"]),
            (&json!("write"), &json!("write-commit"))
        );
        let statement = stages[3]["statement"].as_str().unwrap();
        assert!(
            statement.contains("stock = $2") && statement.contains("fence <= $4"),
            "{statement}"
        );
        assert_eq!(stages[5]["kind"], "lock");
    }
}
