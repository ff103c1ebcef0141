//! The shape of a lesson, and the result of its run.

use futures_util::future::BoxFuture;

use super::default_load::DefaultLoad;
use super::run::ArmResult;
use super::scenario::Scenario;

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
    pub load: Option<DefaultLoad>,
    /// Names of the sources that it shows ([`super::source`]).
    pub shows: &'static [&'static str],
    pub takeaway: [&'static str; 3],
    pub(super) play: for<'a> fn(&'a Scenario) -> BoxFuture<'a, anyhow::Result<LessonResult>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonResult {
    /// True if the claim was shown; `None` if the run had no claim.
    pub shown: Option<bool>,
    pub verdict: String,
}

impl LessonResult {
    pub fn new(shown: bool, verdict: impl Into<String>) -> Self {
        Self { shown: Some(shown), verdict: verdict.into() }
    }

    /// Returns the result of a load that the visitor may have changed. `hindrance` is the reason
    /// why this load cannot show the claim.
    pub fn of_load(hindrance: Option<String>, shown: bool, verdict: impl Into<String>) -> Self {
        match hindrance {
            Some(why) => Self::new(false, format!("not shown, because {why}")),
            None => Self::new(shown, verdict),
        }
    }
}

/// Describes the same load at one replica and at all of them.
pub(super) fn compare_replicas(one: &ArmResult, all: &ArmResult, replicas: usize) -> String {
    let sold = |arm: &ArmResult| {
        format!("{} sold of {}, {} forks", arm.sold, arm.stock_opening, arm.forks)
    };
    format!("one replica: {} · {replicas} replicas: {}", sold(one), sold(all))
}
