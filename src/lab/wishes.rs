//! Parses the lab's request headers, the conditions under which a request is executed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::ladder::{DEFAULT_CAPACITY, Mechanism, Priority, QueueOptions, WhenFull};
use crate::lock::Wait;
use crate::probe::{Board, Pause, Point, Probe, Watch};
use crate::shop::{RequestOptions, Shop, Strategy};

/// Upper bound of the extra work between read and write, in ms.
pub const MOST_WORK_MS: u64 = 5_000;
/// Range of a requested lease, in ms.
pub const TTL_RANGE_MS: std::ops::RangeInclusive<u64> = 10..=60_000;
/// Range of `Holdfast-Hold-Ms`: how long an unpaid order keeps its units.
pub const HOLD_RANGE_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

/// Upper bound of the wait for a place in a queue, in ms.
pub const MOST_OFFER_MS: u64 = 7_000;

const LOCK: &str = "Holdfast-Lock";
const WAIT: &str = "Holdfast-Wait";
const OFFER: &str = "Holdfast-Offer";
const PLACES_HEADER: &str = "Holdfast-Places";
const PRIORITY: &str = "Holdfast-Priority";
const WORK: &str = "Holdfast-Work-Ms";
const TTL: &str = "Holdfast-Ttl-Ms";
const TRACE: &str = "Holdfast-Trace";
const PAUSE: &str = "Holdfast-Pause";
const HOLD: &str = "Holdfast-Hold-Ms";
/// The lab's headers, in the order in which they are read.
const HEADERS: [&str; 10] =
    [LOCK, WAIT, OFFER, PLACES_HEADER, PRIORITY, WORK, TTL, TRACE, PAUSE, HOLD];

/// The lab's headers of a request, each with its value.
#[derive(Debug, Clone, Default)]
pub struct Wishes(Vec<(&'static str, String)>);

/// An invalid lab header, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ungrantable(pub &'static str, pub String);

impl Wishes {
    /// Reads the lab's headers; `text` returns the value of a header.
    ///
    /// # Errors
    /// Those of `text`.
    pub fn read<E>(text: impl Fn(&'static str) -> Result<Option<String>, E>) -> Result<Self, E> {
        let there = |header| text(header).map(|text| text.map(|text| (header, text))).transpose();
        Ok(Self(HEADERS.into_iter().filter_map(there).collect::<Result<_, E>>()?))
    }

    /// Returns whether any of the lab's headers is present.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    fn of(&self, header: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == header).map(|(_, wish)| wish.as_str())
    }

    fn number(
        &self,
        header: &'static str,
        range: &std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Ungrantable> {
        self.of(header).map(|text| number(header, text, range)).transpose()
    }

    /// Parses the headers into options of the request.
    ///
    /// # Errors
    /// [`Ungrantable`] for the first invalid header.
    pub fn grant(
        &self,
        shop: &Shop,
        replica: &str,
        board: &Board,
        request_id: Uuid,
    ) -> Result<RequestOptions, Ungrantable> {
        let mut conditions = RequestOptions::new(shop, request_id);
        if let Some(name) = self.of(LOCK) {
            let unknown = || Ungrantable(LOCK, format!("one of {}", Strategy::names()));
            conditions.strategy = Strategy::named(name).ok_or_else(unknown)?;
            if conditions.strategy.lock.is_some_and(|kind| !shop.locks.has(kind)) {
                let why = format!("{name} is not configured here; it needs REDLOCK_URLS");
                return Err(Ungrantable(LOCK, why));
            }
        }
        conditions.wait = self.wait(conditions.strategy)?;
        conditions.queue_options = self.queue_options(&conditions)?;
        conditions.ttl = self.number(TTL, &TTL_RANGE_MS)?.map(Duration::from_millis);
        if let Some(hold) = self.number(HOLD, &HOLD_RANGE_MS)? {
            conditions.hold = Duration::from_millis(hold);
        }
        conditions.probe = self.probe(replica, board, &conditions)?;
        Ok(conditions)
    }

    fn wait(&self, strategy: &Strategy) -> Result<Option<Wait>, Ungrantable> {
        let Some(name) = self.of(WAIT) else { return Ok(None) };
        let Some(wait) = Wait::named(name) else {
            return Err(Ungrantable(WAIT, "one of try, retry, notify".to_owned()));
        };
        if strategy.waits().contains(&wait) {
            Ok(Some(wait))
        } else {
            Err(Ungrantable(WAIT, format!("{} has no waiting mode {name}", strategy.name)))
        }
    }

    /// Parses the queue options, which only a strategy with a queue accepts.
    fn queue_options(&self, conditions: &RequestOptions) -> Result<QueueOptions, Ungrantable> {
        let strategy = conditions.strategy;
        if strategy.lock != Some(Mechanism::Queue)
            && let Some(header) = [OFFER, PLACES_HEADER, PRIORITY]
                .into_iter()
                .find(|header| self.of(header).is_some())
        {
            return Err(Ungrantable(header, format!("{} has no queue", strategy.name)));
        }
        if conditions.wait == Some(Wait::Try) && self.of(OFFER).is_some() {
            let why = "with Holdfast-Wait: try nothing is offered to the queue";
            return Err(Ungrantable(OFFER, why.to_owned()));
        }
        let priority = |name: &str| {
            let why = || Ungrantable(PRIORITY, "high or normal".to_owned());
            Priority::named(name).ok_or_else(why)
        };
        let places = self.number(PLACES_HEADER, &(1..=DEFAULT_CAPACITY as u64))?;
        Ok(QueueOptions {
            when_full: self.of(OFFER).map(when_full).transpose()?.unwrap_or_default(),
            priority: self.of(PRIORITY).map(priority).transpose()?,
            capacity: places.and_then(|places| usize::try_from(places).ok()),
        })
    }

    fn probe(
        &self,
        replica: &str,
        board: &Board,
        conditions: &RequestOptions,
    ) -> Result<Probe, Ungrantable> {
        let work = self.number(WORK, &(0..=MOST_WORK_MS))?;
        let record = match self.of(TRACE) {
            None | Some("off") => false,
            Some("on") => true,
            Some(_) => return Err(Ungrantable(TRACE, "on or off".to_owned())),
        };
        let pause = self.of(PAUSE).map(|wish| pause(wish, conditions.deadline)).transpose()?;
        if work.is_none() && !record && pause.is_none() {
            return Ok(Probe::Off);
        }
        Ok(Probe::Lab(Arc::new(Watch {
            replica: replica.to_owned(),
            work: Duration::from_millis(work.unwrap_or(0)),
            record,
            pause,
            request_id: conditions.request_id,
            board: board.clone(),
            released: AtomicBool::new(false),
            events: Mutex::default(),
        })))
    }
}

/// Parses `add`, `offer`, `put`, `offer-for` (waits for at most the acquire timeout) or
/// `offer-for:300` (waits for at most 300 ms): the names of Java's `BlockingQueue`.
fn when_full(wish: &str) -> Result<WhenFull, Ungrantable> {
    match wish.split_once(':').unwrap_or((wish, "")) {
        ("add", "") => Ok(WhenFull::Fail),
        ("offer", "") => Ok(WhenFull::Reject),
        ("put", "") => Ok(WhenFull::Wait),
        ("offer-for", "") => Ok(WhenFull::WaitFor(None)),
        ("offer-for", ms) => {
            let ms = number(OFFER, ms, &(0..=MOST_OFFER_MS))?;
            Ok(WhenFull::WaitFor(Some(Duration::from_millis(ms))))
        }
        _ => Err(Ungrantable(OFFER, "one of add, offer, put, offer-for".to_owned())),
    }
}

/// Parses `commit` (held until resumed or until the request's deadline), `commit:300` (for at most
/// 300 ms) or `every` (held at every point).
fn pause(wish: &str, deadline: Instant) -> Result<Pause, Ungrantable> {
    let (name, bound) = match wish.split_once(':') {
        Some((name, ms)) => (name, Some(number(PAUSE, ms, &(0..=8_000))?)),
        None => (wish, None),
    };
    let at = Point::named(name);
    if at.is_none() && name != "every" {
        return Err(Ungrantable(PAUSE, format!("every, or one of {}", Point::names())));
    }
    Ok(Pause { at, length: bound.map(Duration::from_millis), until: deadline })
}

fn number(
    header: &'static str,
    text: &str,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<u64, Ungrantable> {
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(Ungrantable(header, format!("a number, {} to {}", range.start(), range.end()))),
    }
}
