//! Validates a request for a run.

use std::ops::RangeInclusive;

use holdfast_lock::Wait;

use super::headers::TTL_RANGE_MS;
use super::lesson::Lesson;
use super::lessons;
use super::run::RunRequest;
use crate::messages::{Message, message};
use crate::output::grouped;
use crate::shop::Strategy;

const MAX_ARMS: usize = 6;
/// Valid values of the fields that are numbers; `fault` is both times of a fault. Any number is
/// valid in others.
static RANGES: [(&str, RangeInclusive<u64>); 7] = [
    ("stock", 0..=10_000),
    ("buyers", 1..=64),
    ("orders", 1..=5_000),
    ("work_ms", 0..=1_000),
    ("ttl_ms", TTL_RANGE_MS),
    ("replicas", 1..=16),
    ("fault", 0..=10_000),
];

/// Returns the valid numbers of a field of the API or of a form.
pub fn range_of(field: &str) -> RangeInclusive<u64> {
    let range = RANGES.iter().find(|(name, _)| field.starts_with(name));
    range.map_or(0..=u64::MAX, |(_, range)| range.clone())
}

pub fn describe_range(field: &str) -> Message {
    let (least, most) = range_of(field).into_inner();
    if most == u64::MAX {
        return message!("lab-any-number");
    }
    message!("lab-range", least = grouped(least), most = grouped(most))
}

/// Returns the error of a field whose number is not valid.
pub fn invalid_number(field: &str) -> Message {
    message!("lab-wrong-number", range = describe_range(field))
}

impl RunRequest {
    /// Returns the first invalid field and the reason, or `None`.
    pub fn invalid_field(&self) -> Option<(&'static str, Message)> {
        let unknown = self.strategies.iter().find(|name| Strategy::named(name).is_none());
        let unknown = unknown.map(|name| {
            let names = Strategy::names();
            ("strategies", message!("lab-wrong-strategy", name, names))
        });
        self.invalid_lesson()
            .or(unknown)
            .or_else(|| self.number_out_of_range().map(|field| (field, invalid_number(field))))
            .or_else(|| self.invalid_wait().map(|why| ("wait", why)))
    }

    /// Checks that there is either a lesson, with fields that it uses, or some strategies.
    fn invalid_lesson(&self) -> Option<(&'static str, Message)> {
        let Some(name) = &self.lesson else {
            let is_valid = (1..=MAX_ARMS).contains(&self.strategies.len());
            return (!is_valid).then(|| ("strategies", message!("lab-wrong-strategies")));
        };
        let Some(lesson) = lessons::named(name) else {
            return Some(("lesson", message!("lab-wrong-lesson", names = lessons::names())));
        };
        let unused = self.unused_field(lesson)?;
        Some((unused, message!("lab-wrong-unused", lesson = name)))
    }

    /// Returns a field that is set but has no effect on the lesson.
    fn unused_field(&self, lesson: &Lesson) -> Option<&'static str> {
        let (load, lease) = (lesson.load.is_some(), lesson.load.is_some_and(|c| c.lease));
        let settings = [
            ("strategies", !self.strategies.is_empty(), false),
            ("stock", self.stock.is_some(), load),
            ("buyers", self.buyers.is_some(), load),
            ("orders", self.orders.is_some(), load),
            ("work_ms", self.work_ms.is_some(), load),
            ("seed", self.seed.is_some(), load),
            ("ttl_ms", self.ttl_ms.is_some(), lease),
            ("journey", self.journey.is_some(), false),
            ("wait", self.wait.is_some(), false),
            ("replicas", self.replicas.is_some(), false),
            ("fault", self.fault.is_some(), false),
        ];
        settings.into_iter().find(|(_, settings, used)| *settings && !used).map(|(field, ..)| field)
    }

    fn number_out_of_range(&self) -> Option<&'static str> {
        let fault = self.fault.as_ref();
        let numbers = [
            ("stock", self.stock.map(|stock| u64::try_from(stock).unwrap_or(u64::MAX))),
            ("buyers", self.buyers.map(u64::from)),
            ("orders", self.orders.map(u64::from)),
            ("work_ms", self.work_ms),
            ("ttl_ms", self.ttl_ms),
            ("replicas", self.replicas.map(|replicas| replicas as u64)),
            ("fault", fault.map(|fault| fault.at_ms)),
            ("fault", fault.map(|fault| fault.for_ms)),
        ];
        let mut set = numbers.into_iter().filter_map(|(field, number)| Some((field, number?)));
        set.find(|(field, number)| !range_of(field).contains(number)).map(|(field, _)| field)
    }

    fn invalid_wait(&self) -> Option<Message> {
        let Some(wait) = Wait::named(self.wait.as_deref()?) else {
            return Some(message!("lab-wrong-wait-name"));
        };
        let mut locking = self
            .strategies
            .iter()
            .filter_map(|name| Strategy::named(name))
            .filter(|strategy| strategy.lock.is_some());
        let lacks_mode = locking.any(|strategy| !strategy.waits().contains(&wait));
        lacks_mode.then(|| message!("lab-wrong-wait"))
    }
}
