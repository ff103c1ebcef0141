//! Lessons: each makes a claim, shows it with a run, and ends with takeaways. One file per lesson,
//! all of the same shape.
//!
//! Tests: `tests/alone/lessons.rs` plays every lesson and fails if its claim is not shown.

mod big_key;
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
mod pipeline;
mod queue;
mod redlock;
mod reentrant;
mod run_once;
mod two_items;
mod unpaid;
mod waiting;
mod watchdog;
mod wrong_delete;
mod wrong_key;

pub use super::arm_spec::DefaultLoad;
pub use super::lesson::{Chapter, GUESSES, Lesson};
// What the lessons are made of.
pub(super) use super::cluster::{LESSON_KEY_PREFIX, connect};
pub(super) use super::delay_queue::DelayQueue;
pub(super) use super::headers::{OFFER, PAYMENT_WINDOW_MS, PLACES, PRIORITY};
pub(super) use super::lesson::{LessonResult, compare_replicas, sales, throughputs, yes_or_no};
pub(super) use super::lesson_request::{LessonRequest, order_of};
pub(super) use super::payer::Payer;
pub(super) use super::poll::{poll, wait_until};
pub(super) use super::raw_locks::{acquire, lock_client};
pub(super) use super::request::{InFlightRequest, LabResponse};
pub(super) use super::run::{ArmResult, Journey};
pub(super) use super::scenario::Scenario;

/// All lessons, in teaching order: chapter by chapter.
pub static LESSONS: &[&Lesson] = &[
    &lost_update::LESSON,
    &one_replica::LESSON,
    &database::LESSON,
    &wrong_key::LESSON,
    &dead_holder::LESSON,
    &let_it_expire::LESSON,
    &wrong_delete::LESSON,
    &check_then_delete::LESSON,
    &outlived::LESSON,
    &watchdog::LESSON,
    &fence::LESSON,
    &failover::LESSON,
    &redlock::LESSON,
    &waiting::LESSON,
    &reentrant::LESSON,
    &two_items::LESSON,
    &early_release::LESSON,
    &hot_item::LESSON,
    &double_submit::LESSON,
    &machine_gun::LESSON,
    &unpaid::LESSON,
    &queue::LESSON,
    &run_once::LESSON,
    &big_key::LESSON,
    &pipeline::LESSON,
    &no_rollback::LESSON,
];

pub fn named(name: &str) -> Option<&'static Lesson> {
    LESSONS.iter().copied().find(|lesson| lesson.name == name)
}

pub fn names() -> String {
    LESSONS.iter().map(|lesson| lesson.name).collect::<Vec<_>>().join(", ")
}

impl Lesson {
    /// Returns its position in the teaching order, from 1.
    pub fn number(&self) -> usize {
        LESSONS.iter().take_while(|lesson| lesson.name != self.name).count() + 1
    }

    pub fn next(&self) -> Option<&'static Lesson> {
        LESSONS.get(self.number()).copied()
    }
}
