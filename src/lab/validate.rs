//! Validates a request for a run.

use holdfast_lock::Wait;

use super::headers::TTL_RANGE_MS;
use super::lesson::Lesson;
use super::lessons;
use super::run::{MAX_BUYERS, RunRequest};
use crate::shop::Strategy;

const MAX_ARMS: usize = 6;
const MAX_STOCK: i64 = 10_000;
const MAX_ORDERS: u32 = 5_000;
/// Upper bound of the replicas of a `holdfast up`.
const MAX_REPLICAS: usize = 16;
const MAX_WORK_MS: u64 = 1_000;
const MAX_FAULT_MS: u64 = 10_000;

impl RunRequest {
    /// Returns the first invalid field and its allowed values, or `None`.
    pub fn invalid_field(&self) -> Option<(&'static str, String)> {
        let out = |field, range: &str| Some((field, range.to_owned()));
        match (&self.lesson, self.strategies.len()) {
            (Some(name), 0) => match lessons::named(name) {
                None => return Some(("lesson", format!("one of {}", lessons::names()))),
                Some(lesson) => {
                    if let Some(field) = self.unused_field(lesson) {
                        return Some((field, format!("the lesson {name} does not use it")));
                    }
                }
            },
            (Some(_), _) => return out("strategies", "a lesson defines its own"),
            (None, 1..=MAX_ARMS) => {}
            (None, _) => return out("strategies", "1 to 6 strategies"),
        }
        if let Some(unknown) = self.strategies.iter().find(|name| Strategy::named(name).is_none()) {
            return Some(("strategies", format!("{unknown} is not one of {}", Strategy::names())));
        }
        let ranges = [
            ("stock", "0 to 10,000", self.stock.is_none_or(|n| (0..=MAX_STOCK).contains(&n))),
            ("buyers", "1 to 64", self.buyers.is_none_or(|n| (1..=MAX_BUYERS).contains(&n))),
            ("orders", "1 to 5,000", self.orders.is_none_or(|n| (1..=MAX_ORDERS).contains(&n))),
            ("work_ms", "0 to 1,000 ms", self.work_ms.is_none_or(|n| n <= MAX_WORK_MS)),
            ("ttl_ms", "10 to 60,000 ms", self.ttl_ms.is_none_or(|n| TTL_RANGE_MS.contains(&n))),
            ("replicas", "1 to 16", self.replicas.is_none_or(|n| (1..=MAX_REPLICAS).contains(&n))),
        ];
        if let Some((field, range, _)) = ranges.into_iter().find(|(.., holds)| !holds) {
            return out(field, range);
        }
        self.invalid_wait().or_else(|| self.invalid_fault())
    }

    /// Returns a field that is set but has no effect on the lesson.
    fn unused_field(&self, lesson: &Lesson) -> Option<&'static str> {
        let (load, lease) = (lesson.load.is_some(), lesson.load.is_some_and(|c| c.lease));
        let settings = [
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

    fn invalid_wait(&self) -> Option<(&'static str, String)> {
        let name = self.wait.as_deref()?;
        let Some(wait) = Wait::named(name) else {
            return Some(("wait", "one of try, retry, notify".to_owned()));
        };
        let strategies = self.strategies.iter().filter_map(|name| Strategy::named(name));
        let without = |strategy: &&Strategy| !strategy.waits().contains(&wait);
        strategies
            .filter(|strategy| strategy.lock.is_some())
            .find(without)
            .map(|strategy| ("wait", format!("{} has no waiting mode {name}", strategy.name)))
    }

    fn invalid_fault(&self) -> Option<(&'static str, String)> {
        let fault = self.fault.as_ref()?;
        let long = fault.at_ms > MAX_FAULT_MS || fault.for_ms > MAX_FAULT_MS;
        long.then(|| ("fault", "at_ms and for_ms: 0 to 10,000 ms".to_owned()))
    }
}
