//! Validates a request for a run, and derives its arms.

use super::arm::Spec;
use super::headers::TTL_RANGE_MS;
use super::lessons::{self, Lesson};
use super::run::Wanted;
use crate::lock::Wait;
use crate::shop::Strategy;

/// Upper bound of concurrent buyers.
pub const MOST_BUYERS: u32 = 64;
const MOST_ARMS: usize = 6;
const MOST_STOCK: i64 = 10_000;
const MOST_ORDERS: u32 = 5_000;
/// Upper bound of the replicas of a `holdfast up`.
const MOST_REPLICAS: usize = 16;
const MOST_WORK_MS: u64 = 1_000;
const MOST_FAULT_MS: u64 = 10_000;

impl Wanted {
    /// Returns the first invalid field and its allowed values, or `None`.
    pub fn wrong(&self) -> Option<(&'static str, String)> {
        let out = |field, range: &str| Some((field, range.to_owned()));
        match (&self.lesson, self.strategies.len()) {
            (Some(name), 0) => match lessons::named(name) {
                None => return Some(("lesson", format!("one of {}", lessons::names()))),
                Some(lesson) => {
                    if let Some(field) = self.of_no_use(lesson) {
                        return Some((field, format!("the lesson {name} does not use it")));
                    }
                }
            },
            (Some(_), _) => return out("strategies", "a lesson brings its own"),
            (None, 1..=MOST_ARMS) => {}
            (None, _) => return out("strategies", "1 to 6 of them"),
        }
        if let Some(unknown) = self.strategies.iter().find(|name| Strategy::named(name).is_none()) {
            return Some(("strategies", format!("{unknown} is not one of {}", Strategy::names())));
        }
        let ranges = [
            ("stock", "0 to 10,000", self.stock.is_none_or(|n| (0..=MOST_STOCK).contains(&n))),
            ("buyers", "1 to 64", self.buyers.is_none_or(|n| (1..=MOST_BUYERS).contains(&n))),
            ("orders", "1 to 5,000", self.orders.is_none_or(|n| (1..=MOST_ORDERS).contains(&n))),
            ("work_ms", "0 to 1,000 ms", self.work_ms.is_none_or(|n| n <= MOST_WORK_MS)),
            ("ttl_ms", "10 to 60,000 ms", self.ttl_ms.is_none_or(|n| TTL_RANGE_MS.contains(&n))),
            ("replicas", "1 to 16", self.replicas.is_none_or(|n| (1..=MOST_REPLICAS).contains(&n))),
        ];
        if let Some((field, range, _)) = ranges.into_iter().find(|(.., holds)| !holds) {
            return out(field, range);
        }
        self.wrong_wait().or_else(|| self.wrong_fault())
    }

    /// Returns a field that is set but has no effect on the lesson.
    fn of_no_use(&self, lesson: &Lesson) -> Option<&'static str> {
        let (crowd, lease) = (lesson.crowd.is_some(), lesson.crowd.is_some_and(|c| c.lease));
        let said = [
            ("stock", self.stock.is_some(), crowd),
            ("buyers", self.buyers.is_some(), crowd),
            ("orders", self.orders.is_some(), crowd),
            ("work_ms", self.work_ms.is_some(), crowd),
            ("seed", self.seed.is_some(), crowd),
            ("ttl_ms", self.ttl_ms.is_some(), lease),
            ("journey", self.journey.is_some(), false),
            ("wait", self.wait.is_some(), false),
            ("replicas", self.replicas.is_some(), false),
            ("fault", self.fault.is_some(), false),
        ];
        said.into_iter().find(|(_, said, used)| *said && !used).map(|(field, ..)| field)
    }

    fn wrong_wait(&self) -> Option<(&'static str, String)> {
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

    fn wrong_fault(&self) -> Option<(&'static str, String)> {
        let fault = self.fault.as_ref()?;
        let long = fault.at_ms > MOST_FAULT_MS || fault.for_ms > MOST_FAULT_MS;
        long.then(|| ("fault", "at_ms and for_ms: 0 to 10,000 ms".to_owned()))
    }

    /// Returns the arms, with defaults filled in. [`Wanted::wrong`] must have returned `None`.
    pub(super) fn specs(&self, replicas: usize) -> Vec<Spec> {
        let orders = self.orders.unwrap_or(200) as usize;
        let spec = |strategy: &String| Spec {
            strategy: strategy.clone(),
            journey: self.journey.unwrap_or_default(),
            stock: self.stock.unwrap_or(100),
            buyers: (self.buyers.unwrap_or(16) as usize).min(orders),
            orders,
            work_ms: self.work_ms.unwrap_or(0),
            ttl_ms: self.ttl_ms,
            wait: self.wait.clone(),
            seed: self.seed.unwrap_or(1),
            replicas: self.replicas.unwrap_or(replicas).clamp(1, replicas),
            fault: self.fault.clone(),
        };
        self.strategies.iter().map(spec).collect()
    }
}
