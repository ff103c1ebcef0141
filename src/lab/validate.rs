//! Validates a request for a run.

use std::ops::RangeInclusive;

use holdfast_lock::Wait;

use super::headers::TTL_RANGE_MS;
use super::lessons::{self, DefaultLoad};
use super::run::RunRequest;
use crate::messages::{Message, message};
use crate::output::grouped;
use crate::shop::Strategy;

const MAX_ARMS: usize = 6;
/// Valid values of the fields that are numbers; `fault` is both times of a fault. Any number is
/// valid in others.
static RANGES: [(&str, RangeInclusive<u64>); 6] = [
    ("stock", 0..=10_000),
    ("buyers", 1..=64),
    ("orders", 1..=5_000),
    ("work_ms", 0..=1_000),
    ("ttl_ms", TTL_RANGE_MS),
    ("fault", 0..=10_000),
];

/// Fields that a visitor may change of the load of a lesson; the last one if it has a lease.
const LOAD_FIELDS: [&str; 6] = ["stock", "buyers", "orders", "work_ms", "seed", "ttl_ms"];

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
        self.invalid_lesson()
            .or_else(|| self.invalid_strategies().map(|why| ("strategies", why)))
            .or_else(|| self.number_out_of_range().map(|field| (field, invalid_number(field))))
            .or_else(|| self.invalid_wait().map(|why| ("wait", why)))
    }

    /// Checks that the lesson exists, and uses the fields that are set.
    fn invalid_lesson(&self) -> Option<(&'static str, Message)> {
        let name = self.lesson.as_ref()?;
        let Some(lesson) = lessons::named(name) else {
            return Some(("lesson", message!("lab-wrong-lesson", names = lessons::names())));
        };
        let used: &[&str] = match lesson.load {
            None => &[],
            Some(DefaultLoad { lease: false, .. }) => &LOAD_FIELDS[..5],
            Some(DefaultLoad { lease: true, .. }) => &LOAD_FIELDS,
        };
        let others = [
            ("strategies", !self.strategies.is_empty()),
            ("seed", self.seed.is_some()),
            ("journey", self.journey.is_some()),
            ("wait", self.wait.is_some()),
        ];
        let numbers = self.numbers().map(|(field, number)| (field, number.is_some()));
        let mut set = numbers.into_iter().chain(others).filter(|(_, is_set)| *is_set);
        let (unused, _) = set.find(|(field, _)| !used.contains(field))?;
        Some((unused, message!("lab-wrong-unused", lesson = name)))
    }

    fn invalid_strategies(&self) -> Option<Message> {
        let is_counted = self.lesson.is_some() || (1..=MAX_ARMS).contains(&self.strategies.len());
        if !is_counted {
            return Some(message!("lab-wrong-strategies"));
        }
        let name = self.strategies.iter().find(|name| Strategy::named(name).is_none())?;
        Some(message!("lab-wrong-strategy", name, names = Strategy::names()))
    }

    fn number_out_of_range(&self) -> Option<&'static str> {
        let set = self.numbers().into_iter().filter_map(|(field, number)| Some((field, number?)));
        let mut wrong = set.filter(|(field, number)| !range_of(field).contains(number));
        wrong.next().map(|(field, _)| field)
    }

    fn numbers(&self) -> [(&'static str, Option<u64>); 7] {
        let fault = self.fault.as_ref();
        [
            ("stock", self.stock.map(|stock| u64::try_from(stock).unwrap_or(u64::MAX))),
            ("buyers", self.buyers.map(u64::from)),
            ("orders", self.orders.map(u64::from)),
            ("work_ms", self.work_ms),
            ("ttl_ms", self.ttl_ms),
            ("fault", fault.map(|fault| fault.at_ms)),
            ("fault", fault.map(|fault| fault.for_ms)),
        ]
    }

    fn invalid_wait(&self) -> Option<Message> {
        let Some(wait) = Wait::named(self.wait.as_deref()?) else {
            return Some(message!("lab-wrong-wait-name"));
        };
        let mut strategies = self.strategies.iter().filter_map(|name| Strategy::named(name));
        let lacks = |of: &Strategy| of.lock.is_some() && !of.waits().contains(&wait);
        strategies.any(lacks).then(|| message!("lab-wrong-wait"))
    }
}
