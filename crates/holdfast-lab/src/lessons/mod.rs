//! Lessons: each makes a claim, and shows it with a run. `tests/alone/lessons.rs` plays every
//! lesson and fails if its claim is not shown.

mod big_key;
mod check_then_decrement;
mod check_then_delete;
mod database;
mod dead_holder;
mod double_submit;
mod early_release;
mod failover;
mod fence;
mod hot_item;
mod let_it_expire;
mod lost_update;
mod machine_gun;
mod no_rollback;
mod one_replica;
mod outlived;
mod parts;
mod pipeline;
mod pre_deduct;
mod price_changed;
mod queue;
mod redlock;
mod reentrant;
mod run_once;
mod sketches;
mod two_items;
mod units;
mod unpaid;
mod waiting;
mod watchdog;
mod wrong_delete;
mod wrong_key;

pub use super::arm_spec::DefaultLoad;
pub(super) use super::arm_spec::Supply;
// What the lessons are made of.
pub(super) use super::cluster::{LESSON_KEY_PREFIX, connect};
pub(super) use super::delay_queue::DelayQueue;
pub(super) use super::headers::{
    OFFER, PAUSE, PAYMENT_WINDOW_MS, PLACES, PRIORITY, RETRY_MS, WAIT,
};
pub(super) use super::lesson_request::{LessonRequest, Payer};
pub use super::progress::GUESSES;
pub(super) use super::request::{InFlightRequest, LabResponse, order_of};
pub(super) use super::run::{ArmResult, Journey, Lane};
pub(super) use super::scenario::{Scenario, poll, wait_until};
pub(super) use outlived::LEASE_MS;
pub use parts::{Chapter, Lesson, LessonResult};
pub(super) use parts::{acquire, compare_replicas, lock_client, sales, whole_ms, yes_or_no};
pub use sketches::{Row, SketchCell};

/// A row has the lesson's name and file, the scene that its question asks about, the index of the
/// right answer among its guesses, the time that it takes, its difficulty (1 to 3), whether it asks
/// about the load at its end, the lessons that it needs, the default load, if it ends with one, and
/// the names of the sources that it shows.
macro_rules! lessons {
    ($($chapter:ident {
        $($name:literal $file:ident $scene:literal: $right:literal,
            $minutes:literal min, level $level:literal, $(asks_about_load: $asks:literal,)?
            after $after:expr, $load:expr, $sources:expr;)*
    })*) => {
        &[$($(&Lesson {
            name: $name,
            chapter: Chapter::$chapter,
            right: $right,
            scene: $scene,
            minutes: $minutes,
            level: $level,
            asks_about_load: false $(|| $asks)?,
            after: &$after,
            load: $load,
            shows: &$sources,
            run: |lab| Box::pin($file::run(lab)),
        }),*),*]
    };
}

/// In teaching order.
pub static LESSONS: &[&Lesson] = lessons! {
    Why {
        "lost-update" lost_update "pair": 3, 4 min, level 1, asks_about_load: true, after [],
            Some(lost_update::LOAD), ["none", "read.rs", "place.rs"];
        "one-replica" one_replica "mutex": 1, 3 min, level 1, asks_about_load: true,
            after ["lost-update"], Some(one_replica::LOAD), ["local"];
        "database" database "same-statement": 2, 6 min, level 2, after ["lost-update"],
            Some(database::LOAD), [
                "row-lock", "atomic", "version", "serializable", "advisory", "read.rs",
                "conditional_update.rs", "place.rs",
            ];
        "check-then-decrement" check_then_decrement "below-zero": 2, 4 min, level 1,
            after ["database"], None, ["check-then-decrement", "conditional_update.rs", "atomic"];
        "wrong-key" wrong_key "two-payments": 2, 3 min, level 1, after ["lost-update"],
            Some(wrong_key::LOAD), ["wrong-key", "owner"];
    }
    Writing {
        "dead-holder" dead_holder "setnx": 3, 3 min, level 1, after ["one-replica"],
            None, ["setnx", "setnx-expire"];
        "let-it-expire" let_it_expire "six": 2, 4 min, level 1, after ["dead-holder"],
            None, ["expire-only"];
        "wrong-delete" wrong_delete "chain": 3, 4 min, level 2, after ["dead-holder"],
            None, ["ttl"];
        "check-then-delete" check_then_delete "stale-check": 1, 4 min, level 2, after ["wrong-delete"],
            None, ["check-then-del", "owner"];
        "outlived" outlived "two-holders": 0, 4 min, level 2, after ["check-then-delete"],
            None, ["owner"];
        "watchdog" watchdog "stopped": 2, 4 min, level 2, after ["outlived"],
            None, ["watchdog"];
    }
    Failures {
        "fence" fence "late-write": 3, 6 min, level 3, after ["outlived", "watchdog"],
            None, ["fenced", "place.rs"];
        "failover" failover "failover": 1, 4 min, level 3, after ["outlived"],
            None, ["owner"];
        "redlock" redlock "paused-holder": 2, 5 min, level 3, after ["failover"],
            None, ["redlock"];
    }
    Costs {
        "waiting" waiting "retry": 2, 5 min, level 2, asks_about_load: true,
            after ["dead-holder"], Some(waiting::LOAD), ["owner", "fenced"];
        "reentrant" reentrant "nested": 1, 4 min, level 2, after ["check-then-delete"],
            None, ["owner", "watchdog"];
        "two-items" two_items "postgres": 2, 4 min, level 2, after ["database"],
            None, ["owner", "row-lock"];
        "early-release" early_release "early": 0, 4 min, level 2, after ["database"],
            None, ["early-release", "owner"];
        "hot-item" hot_item "compare": 3, 6 min, level 3, asks_about_load: true,
            after ["waiting"], Some(hot_item::LOAD), [
                "owner", "fenced", "row-lock", "atomic", "batched",
            ];
        "units" units "last-unit": 1, 6 min, level 3, after ["database", "hot-item"],
            Some(units::LOAD), ["units", "units.rs"];
        "pre-deduct" pre_deduct "killed": 1, 5 min, level 3, after ["hot-item"],
            None, ["pre-deduct", "deduct.lua", "deducted.rs"];
    }
    Beyond {
        "double-submit" double_submit "killed": 2, 5 min, level 2, after ["lost-update"],
            None, ["row-lock"];
        "machine-gun" machine_gun "in-turn": 3, 4 min, level 2, after ["double-submit"],
            None, ["row-lock"];
        "unpaid" unpaid "delivered-twice": 0, 5 min, level 3, after ["double-submit"],
            None, ["claim.lua", "expire_orders.rs"];
        "price-changed" price_changed "unchecked": 0, 4 min, level 2, after ["double-submit"],
            None, ["place_order.rs", "fenced"];
        "queue" queue "killed": 1, 5 min, level 2, after ["one-replica"],
            Some(queue::LOAD), ["queue", "priority.rs"];
        "run-once" run_once "lock": 1, 4 min, level 2, after ["one-replica"],
            None, [];
    }
    Redis {
        "big-key" big_key "": 3, 4 min, level 1, after [],
            None, ["remove_hash.rs"];
        "pipeline" pipeline "": 0, 3 min, level 1, after [],
            None, [];
        "no-rollback" no_rollback "": 2, 4 min, level 2, after ["pipeline"],
            None, [];
    }
};

impl Lesson {
    /// Returns its position in the teaching order, from 1.
    pub fn number(&self) -> usize {
        LESSONS.iter().take_while(|lesson| lesson.name != self.name).count() + 1
    }

    /// Returns the id of the scene that is shown below the one that plays.
    pub fn beside(&self) -> Option<&'static str> {
        (self.name == "waiting").then_some(waiting::BESIDE)
    }

    pub fn next(&self) -> Option<&'static Lesson> {
        LESSONS.get(self.number()).copied()
    }

    /// Returns the numbers of the lessons that it needs.
    pub fn after_numbers(&self) -> Vec<usize> {
        self.after.iter().filter_map(|name| Some(named(name)?.number())).collect()
    }
}

impl Chapter {
    /// Returns the lesson whose sketch stands for the chapter.
    pub fn emblem(self) -> Option<&'static Lesson> {
        named(match self {
            Self::Why => "lost-update",
            Self::Writing => "check-then-delete",
            Self::Failures => "fence",
            Self::Costs => "waiting",
            Self::Beyond => "double-submit",
            Self::Redis => "pipeline",
        })
    }
}

pub fn named(name: &str) -> Option<&'static Lesson> {
    LESSONS.iter().copied().find(|lesson| lesson.name == name)
}

pub fn names() -> String {
    LESSONS.iter().map(|lesson| lesson.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_base::messages::{Language, is_chinese};

    use super::*;

    /// In every language, length is no hint: neither "always the longest" nor "never".
    #[test]
    fn right_answer_is_rarely_longest() {
        for language in Language::ALL {
            let is_longest = |lesson: &&Lesson| {
                let guesses = lesson.guesses(language);
                let length = |guess: &String| guess.chars().count();
                let longest = guesses.iter().map(length).max();
                longest == guesses.get(lesson.right).map(length)
            };
            let lessons = LESSONS.iter().copied().filter(is_longest);
            let names: Vec<&str> = lessons.map(|lesson| lesson.name).collect();
            assert!((3..=9).contains(&names.len()), "{}: {names:?}", language.tag());
        }
    }

    #[test]
    fn every_wrong_answer_has_a_reason_of_its_own() {
        for language in Language::ALL {
            let mut reasons = BTreeSet::new();
            for lesson in LESSONS {
                assert_eq!(lesson.why_wrong(lesson.right, language), None, "{}", lesson.name);
                assert_eq!(lesson.why_wrong(GUESSES, language), None, "{}", lesson.name);
                for guess in (0..GUESSES).filter(|guess| *guess != lesson.right) {
                    let reason = lesson.why_wrong(guess, language).unwrap_or_default();
                    assert_is_sentence(&reason, language);
                    assert!(reasons.insert(reason), "{}: {guess} repeats another", lesson.name);
                }
            }
            assert_eq!(reasons.len(), 3 * LESSONS.len(), "{}", language.tag());
        }
        // No reason belongs to a right answer, or to a lesson that does not exist.
        let catalogue = include_str!("../../../../locales/en/reasons.ftl");
        assert_eq!(
            catalogue.lines().filter(|line| line.starts_with("lesson-")).count(),
            3 * LESSONS.len()
        );
    }

    #[test]
    fn lessons_need_only_earlier_ones() {
        for lesson in LESSONS {
            assert_eq!(lesson.after_numbers().len(), lesson.after.len(), "{}", lesson.name);
            assert!(
                lesson.after_numbers().iter().all(|it| *it < lesson.number()),
                "{}",
                lesson.name
            );
            assert!((1..=3).contains(&lesson.level) && lesson.minutes <= 10, "{}", lesson.name);
        }
        for chapter in Chapter::ALL {
            assert_eq!(chapter.emblem().map(|lesson| lesson.chapter), Some(chapter));
        }
    }

    #[test]
    fn primers_are_short() {
        for language in Language::ALL {
            let mut primers = BTreeSet::new();
            for lesson in LESSONS {
                let primer = lesson.primer(language);
                assert!(primer.ends_with(['.', '。']), "{}: {primer}", lesson.name);
                assert!(primer.split_whitespace().count() <= 60, "{}: {primer}", lesson.name);
                let length = if language == Language::Chinese { 120 } else { 400 };
                assert!(primer.chars().count() <= length, "{}: {primer}", lesson.name);
                assert!(primers.insert(primer), "{} repeats another", lesson.name);
            }
        }
    }

    fn assert_is_sentence(text: &str, language: Language) {
        let full_stop = match language {
            Language::English => ". ",
            Language::Chinese => "。",
        };
        let rest = text.strip_suffix(full_stop.trim_end());
        assert!(rest.is_some_and(|rest| !rest.contains(full_stop)), "{text}");
        assert!(!text.contains("localization key"), "{text}");
        assert_eq!(text.contains(is_chinese), language == Language::Chinese, "{text}");
        assert!(text.split_whitespace().count() <= 25, "{text}");
    }
}
