//! Validates a request for a run.

use std::ops::RangeInclusive;

use holdfast_lock::Wait;

use super::headers::{RETRY_RANGE_MS, TTL_RANGE_MS};
use super::lessons;
use super::run::{Journey, RunRequest};
use holdfast_base::messages::{Message, message};
use holdfast_base::output::grouped;
use holdfast_shop::Strategy;

const MAX_ARMS: usize = 6;
/// A number of a request, with its valid values; `fault` is the longer time of a fault.
type NumberField = (&'static str, RangeInclusive<u64>, fn(&RunRequest) -> Option<u64>);
static NUMBERS: [NumberField; 8] = [
    ("stock", 0..=10_000, |run| run.stock.map(|stock| u64::try_from(stock).unwrap_or(u64::MAX))),
    ("buyers", 1..=64, |run| run.buyers.map(u64::from)),
    ("orders", 1..=5_000, |run| run.orders.map(u64::from)),
    ("work_ms", 0..=1_000, |run| run.work_ms),
    ("ttl_ms", TTL_RANGE_MS, |run| run.ttl_ms),
    ("retry_ms", RETRY_RANGE_MS, |run| run.retry_ms),
    ("gap_ms", 0..=1_000, |run| run.gap_ms),
    ("fault", 0..=10_000, |run| run.fault.as_ref().map(|fault| fault.at_ms.max(fault.for_ms))),
];

/// Returns the valid numbers of a field of the API or of a form.
pub fn range_of(field: &str) -> RangeInclusive<u64> {
    let number = NUMBERS.iter().find(|(name, ..)| field.starts_with(name));
    number.map_or(0..=u64::MAX, |(_, range, _)| range.clone())
}

pub fn describe_range(field: &str) -> Message {
    let (least, most) = range_of(field).into_inner();
    if most == u64::MAX {
        return message!("lab-any-number");
    }
    message!("lab-range", least = grouped(least), most = grouped(most))
}

pub fn invalid_number(field: &str) -> Message {
    message!("lab-wrong-number", range = describe_range(field))
}

impl RunRequest {
    pub fn invalid_field(&self) -> Option<(&'static str, Message)> {
        self.invalid_lesson()
            .or_else(|| self.invalid_strategies().map(|why| ("strategies", why)))
            .or_else(|| self.number_out_of_range().map(|field| (field, invalid_number(field))))
            .or_else(|| self.invalid_wait().map(|why| ("wait", why)))
    }

    fn invalid_lesson(&self) -> Option<(&'static str, Message)> {
        let is_unknown = lessons::named(self.lesson.as_ref()?).is_none();
        is_unknown.then(|| ("lesson", message!("lab-wrong-lesson", names = lessons::names())))
    }

    fn invalid_strategies(&self) -> Option<Message> {
        let is_counted = self.lesson.is_some() || (1..=MAX_ARMS).contains(&self.strategies.len());
        if !is_counted {
            return Some(message!("lab-wrong-strategies"));
        }

        let has_own_items =
            |name: &String| Strategy::named(name).is_some_and(Strategy::has_own_items);
        let without_units = self.stock == Some(0) || self.journey == Some(Journey::Pay);
        if without_units && self.strategies.iter().any(has_own_items) {
            return Some(message!("lab-wrong-units"));
        }

        let name = self.strategies.iter().find(|name| Strategy::named(name).is_none())?;
        Some(message!("lab-wrong-strategy", name, names = Strategy::names()))
    }

    fn number_out_of_range(&self) -> Option<&'static str> {
        let mut wrong = NUMBERS.iter().filter(|(_, range, number)| {
            number(self).is_some_and(|number| !range.contains(&number))
        });
        wrong.next().map(|(field, ..)| *field)
    }

    fn invalid_wait(&self) -> Option<Message> {
        let Some(wait) = Wait::named(self.wait.as_deref()?) else {
            return Some(message!("lab-wrong-wait-name"));
        };
        let mut strategies = self.strategies.iter().filter_map(|name| Strategy::named(name));
        let is_lacking = strategies.any(|of| of.lock.is_some() && !of.waits().contains(&wait));
        is_lacking.then(|| message!("lab-wrong-wait"))
    }
}
