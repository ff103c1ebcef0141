//! Lessons: each makes a claim, shows it with a run, and ends with takeaways. One file per lesson,
//! all of the same shape.
//!
//! Tests: `tests/lessons.rs` plays every lesson and fails if its claim is not shown.

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

use futures_util::future::BoxFuture;

use super::crowd::Crowd;
use super::stage::Stage;

#[derive(Debug)]
pub struct Lesson {
    pub number: u32,
    /// Name in the URL and in `holdfast lesson NAME`.
    pub name: &'static str,
    /// The claim that the run shows.
    pub claim: &'static str,
    pub question: &'static str,
    /// Possible answers to the question, including the right one.
    pub guesses: &'static [&'static str],
    /// Index of the right guess.
    pub right: usize,
    /// Default load, if the lesson ends with one; the visitor may change it.
    pub crowd: Option<Crowd>,
    /// Names of the sources that it shows ([`super::source`]).
    pub shows: &'static [&'static str],
    pub takeaway: [&'static str; 3],
    play: for<'a> fn(&'a Stage) -> BoxFuture<'a, anyhow::Result<Shown>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// True if the claim was shown; `None` if the run had no claim.
    pub shown: Option<bool>,
    pub verdict: String,
}

impl Shown {
    pub fn that(shown: bool, verdict: impl Into<String>) -> Self {
        Self { shown: Some(shown), verdict: verdict.into() }
    }

    /// Returns the result of a load that the visitor may have changed. `hindrance` is the reason
    /// why this load cannot show the claim.
    pub fn by_a_crowd(hindrance: Option<String>, shown: bool, verdict: impl Into<String>) -> Self {
        match hindrance {
            Some(why) => Self::that(false, format!("not shown, because {why}")),
            None => Self::that(shown, verdict),
        }
    }
}

/// All lessons, in teaching order.
pub static LESSONS: [&Lesson; 26] = [
    &lost_update::LESSON,
    &one_replica::LESSON,
    &dead_holder::LESSON,
    &let_it_expire::LESSON,
    &wrong_delete::LESSON,
    &check_then_delete::LESSON,
    &outlived::LESSON,
    &watchdog::LESSON,
    &reentrant::LESSON,
    &waiting::LESSON,
    &failover::LESSON,
    &redlock::LESSON,
    &wrong_key::LESSON,
    &fence::LESSON,
    &run_once::LESSON,
    &double_submit::LESSON,
    &machine_gun::LESSON,
    &unpaid::LESSON,
    &queue::LESSON,
    &big_key::LESSON,
    &no_rollback::LESSON,
    &pipeline::LESSON,
    &early_release::LESSON,
    &two_items::LESSON,
    &database::LESSON,
    &hot_item::LESSON,
];

pub fn named(name: &str) -> Option<&'static Lesson> {
    LESSONS.iter().copied().find(|lesson| lesson.name == name)
}

pub fn names() -> String {
    LESSONS.iter().map(|lesson| lesson.name).collect::<Vec<_>>().join(", ")
}

impl Lesson {
    pub(super) async fn play(&self, stage: &Stage) -> anyhow::Result<Shown> {
        (self.play)(stage).await
    }

    pub fn next(&self) -> Option<&'static Lesson> {
        LESSONS.iter().copied().find(|lesson| lesson.number > self.number)
    }
}
