//! The slowest strategy of a load and the fastest that executes batches in slow motion: each is a
//! lane with its orders in turn, on one time scale. The orders of a batch share a lock, a read, a
//! write and a commit, so they are one turn.

use super::traces::{DrawingPlayer, arm_of, timeline_of_lanes};
use crate::web::pages::timeline::TimelineView;
use holdfast_base::messages::Language;
use holdfast_lab::lessons::Lesson;
use holdfast_lab::run::{ArmResult, LabRun, Lane};
use holdfast_story::{Drawing, EventKind, TimelineEvent, Value};

/// Id of the scene that compares.
const SCENE: &str = "compare";
/// Turns of a strategy that are drawn.
const MAX_TURNS: usize = 6;
const MAX_ORDERS: i64 = 10_000;
/// Turns may overlap where nothing makes them wait; then they take several lanes.
const MAX_LANES: usize = 3;
/// The events of a turn that are drawn, in the order of a trace.
const DRAWN: [EventKind; 5] =
    [EventKind::Held, EventKind::Read, EventKind::Write, EventKind::Committed, EventKind::Release];

/// The steps under one lock, with one commit.
struct LockTurn<'a> {
    lanes: Vec<&'a Lane>,
    events: Vec<TimelineEvent<()>>,
}

pub fn player(run: &LabRun, lesson: Option<&Lesson>, language: Language) -> Option<DrawingPlayer> {
    lesson.filter(|lesson| lesson.scene == SCENE)?;
    let (slow, fast) = compared(run)?;
    let turns = [slow, fast].map(|arm| (arm, turns(run, arm)));
    if turns[0].1.is_empty() {
        return None;
    }

    let [of_slow, of_fast] = turns.map(|(arm, turns)| DrawnArm::of(arm, turns, language));
    let variables = [
        ("slow", slow.name(language).into()),
        ("slow_orders", of_slow.orders.into()),
        ("slow_commits", of_slow.commits.into()),
        ("fast", fast.name(language).into()),
        ("fast_orders", of_fast.orders.into()),
        ("fast_commits", of_fast.commits.into()),
    ];
    let sentence = language.text_with("lab-compare", &variables);
    let lanes = [of_slow.lanes, of_fast.lanes].concat();
    let timeline = timeline_of_lanes(&lanes, language);
    Some(DrawingPlayer {
        scene: SCENE.to_owned(),
        sentence: Some(sentence),
        track: TimelineView::from(Drawing::to_scale(timeline, language)),
        beside: None,
    })
}

/// Returns the slowest arm, and the fastest of those whose orders share commits. On a busy machine
/// a strategy without batches may be faster still, and one may sell less than the others. An old
/// run does not tell how many orders shared a commit.
fn compared(run: &LabRun) -> Option<(&ArmResult, &ArmResult)> {
    let mut ranked: Vec<&ArmResult> = run.outcome.arms.iter().collect();
    ranked.sort_by(|a, b| a.orders_per_s.total_cmp(&b.orders_per_s));

    let tells_orders = |turn: &LockTurn| turn.told_orders().is_some();
    let fast = *ranked.iter().rfind(|arm| turns(run, arm).iter().any(tells_orders))?;
    let slow = *ranked.iter().find(|arm| !std::ptr::eq(**arm, fast))?;
    Some((slow, fast))
}

/// Returns the first turns of an arm, by time.
fn turns<'a>(run: &'a LabRun, arm: &ArmResult) -> Vec<LockTurn<'a>> {
    let is_own = |lane: &&Lane| arm_of(run, lane).is_some_and(|of_lane| std::ptr::eq(of_lane, arm));
    let mut turns: Vec<LockTurn<'a>> = Vec::new();
    for lane in run.outcome.lanes.iter().filter(is_own) {
        let Some(committed) = committed(lane) else { continue };
        let same = turns.iter_mut().find(|turn| {
            let first = turn.lanes[0];
            let it = self::committed(first);
            first.replica == lane.replica && it.is_some_and(|it| it.at_us == committed.at_us)
        });
        match same {
            Some(turn) => turn.lanes.push(lane),
            None => turns.push(LockTurn { lanes: vec![lane], events: Vec::new() }),
        }
    }

    turns.iter_mut().for_each(LockTurn::merge);
    turns.sort_by_key(LockTurn::began_us);
    turns.truncate(MAX_TURNS);
    turns
}

fn committed(lane: &Lane) -> Option<&TimelineEvent<()>> {
    lane.events.iter().find(|event| event.kind == EventKind::Committed)
}

impl LockTurn<'_> {
    /// Returns the number of its orders, of which not all may be recorded.
    fn orders(&self) -> i64 {
        self.told_orders().unwrap_or(1)
    }

    /// A file may be anybody's, so the number is bounded.
    fn told_orders(&self) -> Option<i64> {
        let orders = committed(self.lanes[0])?.number()?;
        Some(orders.clamp(1, MAX_ORDERS))
    }

    fn began_us(&self) -> u64 {
        self.events.first().map_or(u64::MAX, |event| event.at_us)
    }

    fn into_lane(self, arm: &ArmResult, language: Language) -> Lane {
        Lane {
            // Of no request: none is sent or answered.
            request_id: uuid::Uuid::nil(),
            label: arm.name(language).into(),
            replica: String::new(),
            strategy: Some(arm.strategy.clone()),
            sent_us: self.began_us(),
            answered_us: None,
            status: None,
            problem: None,
            events: self.events,
            ..self.lanes[0].clone()
        }
    }

    /// Makes one request of the orders, all of which take the same: it reads what the first one
    /// reads, and writes what the last one leaves.
    fn merge(&mut self) {
        let value = |lane: &Lane, kind: EventKind| {
            lane.events.iter().find(|event| event.kind == kind).and_then(TimelineEvent::number)
        };
        self.lanes.sort_by_key(|lane| std::cmp::Reverse(value(lane, EventKind::Write)));
        let first = self.lanes[0];
        let left = value(first, EventKind::Read).zip(value(first, EventKind::Write));
        let left = left.map(|(read, written)| {
            read.saturating_sub(read.saturating_sub(written).saturating_mul(self.orders()))
        });

        // The keys and fences of two strategies are not compared.
        let drawn = first.events.iter().filter(|event| DRAWN.contains(&event.kind));
        self.events = drawn.cloned().collect();
        for event in &mut self.events {
            event.key.clear();
            event.detail.fence = None;
        }
        let write = self.events.iter_mut().find(|event| event.kind == EventKind::Write);
        if let Some(write) = write {
            write.detail.value = left.map(Value::Units);
        }
    }
}

/// The part of an arm that is drawn.
#[derive(Default)]
struct DrawnArm {
    lanes: Vec<Lane>,
    orders: i64,
    commits: usize,
}

impl DrawnArm {
    /// Draws its turns from the first one on, each in a lane that is free. What has no lane is not
    /// counted either.
    fn of(arm: &ArmResult, turns: Vec<LockTurn<'_>>, language: Language) -> Self {
        let mut drawn = Self::default();
        for turn in turns {
            let orders = turn.orders();
            let is_free = |lane: &&mut Lane| {
                lane.events.last().is_none_or(|last| last.at_us <= turn.began_us())
            };

            if let Some(lane) = drawn.lanes.iter_mut().find(is_free) {
                lane.events.extend(turn.events);
            } else if drawn.lanes.len() < MAX_LANES {
                drawn.lanes.push(turn.into_lane(arm, language));
            } else {
                continue;
            }
            drawn.orders += orders;
            drawn.commits += 1;
        }

        let began_us = drawn.lanes.iter().map(|lane| lane.sent_us).min().unwrap_or(0);
        let lanes = drawn.lanes.into_iter().map(|lane| lane.since(began_us)).collect();
        Self { lanes, ..drawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// An order that has the lock from `from_us` on for 50 µs; `orders` share its commit.
    fn lane(arm: usize, replica: &str, from_us: u64, read: i64, orders: Option<i64>) -> Value {
        let event = |after_us: u64, name: &str, value: Option<i64>| json!({ "t_us": from_us + after_us, "event": name, "key": "{sku:tea}", "value": value });
        let events = [
            event(0, "held", None),
            event(10, "read", Some(read)),
            event(20, "write", Some(read - 1)),
            event(40, "committed", orders),
            event(50, "release", None),
        ];
        json!({
            "request_id": uuid::Uuid::now_v7(), "label": "order", "replica": replica, "arm": arm,
            "sent_us": 0, "answered_us": from_us + 70, "status": 201, "problem": null,
            "events": events,
        })
    }

    fn player_of(lanes: &[Value]) -> Option<DrawingPlayer> {
        player_of_arms(&[("owner", 10.0), ("batched", 40.0)], lanes)
    }

    fn player_of_arms(arms: &[(&str, f64)], lanes: &[Value]) -> Option<DrawingPlayer> {
        let arms = arms.iter().map(|(strategy, rate)| {
            json!({
                "strategy": strategy, "sku": "tea", "stock_opening": 100, "sold": 4, "stock": 96,
                "ok": true, "orders_per_s": rate,
            })
        });
        let run = json!({
            "id": uuid::Uuid::nil(), "state": "done", "wanted": { "lesson": "hot-item" },
            "progress": {}, "created_at": "2026-01-01T00:00:00Z", "lanes": lanes,
            "arms": arms.collect::<Vec<_>>(),
        });
        let run: LabRun = serde_json::from_value(run).unwrap();
        let lesson = holdfast_lab::lessons::named("hot-item");
        player(&run, lesson, Language::English)
    }

    #[test]
    fn batch_is_one_turn_with_one_commit() {
        let player = player_of(&[
            lane(0, "1", 1_000, 100, None),
            lane(0, "2", 1_200, 99, None),
            // Of a batch of three, one is not recorded.
            lane(1, "1", 5_000, 99, Some(3)),
            lane(1, "1", 5_000, 100, Some(3)),
            lane(1, "2", 5_100, 97, None),
        ])
        .unwrap();
        assert_eq!(
            player.sentence.unwrap(),
            "owner: 2 orders, 2 commits. batched: 4 orders, 2 commits. Both on one time scale."
        );
        let timeline = &player.track.timeline;
        let lanes: Vec<&str> = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
        assert_eq!(lanes, ["owner", "batched"]);

        let of_batched = timeline.events.iter().filter(|event| event.lane == 1);
        let told: Vec<(u64, String)> =
            of_batched.map(|event| (event.at_us, event.text(Language::English))).collect();
        let expected = [
            (0, "has the lock"),
            (10, "reads 100"),
            (20, "writes 97"),
            (40, "has committed 3 orders at once"),
            (50, "releases the lock"),
            (100, "has the lock"),
            (110, "reads 97"),
            (120, "writes 96"),
            (140, "has committed"),
            (150, "releases the lock"),
        ];
        assert_eq!(told, expected.map(|(at_us, text)| (at_us, text.to_owned())));
        assert!(player.track.to_string().contains(">commit: 3 orders<"));
    }

    /// Where nothing makes them wait, turns overlap, and take a lane each up to a bound.
    #[test]
    fn overlapping_turns_have_lanes_of_their_own() {
        let overlapping = (0..5).map(|at| lane(0, "1", 1_000 + at, 100, None));
        let of_batched = [lane(1, "1", 5_000, 100, Some(3))];
        let player = player_of(&overlapping.chain(of_batched).collect::<Vec<_>>()).unwrap();
        assert_eq!(player.track.timeline.lanes.len(), MAX_LANES + 1);
        // What is not drawn is not counted.
        let sentence = player.sentence.unwrap();
        assert!(sentence.starts_with("owner: 3 orders, 3 commits."), "{sentence}");
    }

    #[test]
    fn batches_are_compared_though_another_strategy_was_faster() {
        let arms = [("owner", 10.0), ("batched", 40.0), ("atomic", 50.0)];
        let lanes = [
            lane(0, "1", 1_000, 100, None),
            lane(1, "1", 5_000, 100, Some(3)),
            lane(2, "1", 9_000, 100, None),
        ];
        let sentence = player_of_arms(&arms, &lanes).unwrap().sentence.unwrap();
        assert!(sentence.starts_with("owner: 1 order, 1 commit. batched: 3 orders,"), "{sentence}");
    }

    #[test]
    fn run_that_does_not_tell_of_batches_is_not_compared() {
        let lanes = [lane(0, "1", 1_000, 100, None), lane(1, "1", 5_000, 99, None)];
        assert!(player_of(&lanes).is_none());
    }
}
