//! The conditions under which a request may be served, as its headers wish for them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::lock::ladder::queue::PLACES;
use crate::lock::{Kind, Manner, Priority, Wait, WhenFull};
use crate::probe::{Board, Pause, Point, Probe, Watch};
use crate::shop::{RequestOptions, Shop, Strategy};

/// The most extra work between read and write.
pub const MOST_WORK_MS: u64 = 5_000;
/// The shortest and the longest lease that may be asked for.
pub const TTL_RANGE_MS: std::ops::RangeInclusive<u64> = 10..=60_000;
/// For how long an unpaid order may be held at the lab.
pub const HOLD_RANGE_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

/// The longest wait for a place in a queue that may be asked for.
pub const MOST_OFFER_MS: u64 = 7_000;

/// What a request wishes for, as its headers say it.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub lock: Option<String>,
    pub wait: Option<String>,
    pub offer: Option<String>,
    pub places: Option<String>,
    pub priority: Option<String>,
    pub work_ms: Option<String>,
    pub ttl_ms: Option<String>,
    pub trace: Option<String>,
    pub pause: Option<String>,
    pub hold_ms: Option<String>,
}

/// A wish that can't be granted: the header, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ungrantable(pub &'static str, pub String);

impl Wishes {
    pub fn any(&self) -> bool {
        let Self { lock, wait, offer, places, priority, work_ms, ttl_ms, trace, pause, hold_ms } =
            self;
        [lock, wait, offer, places, priority, work_ms, ttl_ms, trace, pause, hold_ms]
            .iter()
            .any(|wish| wish.is_some())
    }

    /// Parses the conditions; [`Ungrantable`] for the first header that makes no sense.
    pub fn grant(
        &self,
        shop: &Shop,
        replica: &str,
        board: &Board,
        request_id: Uuid,
    ) -> Result<RequestOptions, Ungrantable> {
        let mut conditions = RequestOptions::of(shop, request_id);
        if let Some(name) = &self.lock {
            let unknown = || Ungrantable("Holdfast-Lock", format!("one of {}", Strategy::names()));
            conditions.strategy = Strategy::named(name).ok_or_else(unknown)?;
            if conditions.strategy.lock.is_some_and(|kind| !shop.locks.has(kind)) {
                let why = format!("{name} is not configured here; it needs REDLOCK_URLS");
                return Err(Ungrantable("Holdfast-Lock", why));
            }
        }
        conditions.wait = self.wait(conditions.strategy)?;
        conditions.manner = self.manner(&conditions)?;
        conditions.ttl = number("Holdfast-Ttl-Ms", self.ttl_ms.as_deref(), &TTL_RANGE_MS)?
            .map(Duration::from_millis);
        if let Some(hold) = number("Holdfast-Hold-Ms", self.hold_ms.as_deref(), &HOLD_RANGE_MS)? {
            conditions.hold = Duration::from_millis(hold);
        }
        conditions.probe = self.probe(replica, board, &conditions)?;
        Ok(conditions)
    }

    fn wait(&self, strategy: &Strategy) -> Result<Option<Wait>, Ungrantable> {
        const HEADER: &str = "Holdfast-Wait";
        let Some(name) = &self.wait else { return Ok(None) };
        let Some(wait) = Wait::named(name) else {
            return Err(Ungrantable(HEADER, "one of try, retry, notify".to_owned()));
        };
        if strategy.waits().contains(&wait) {
            Ok(Some(wait))
        } else {
            Err(Ungrantable(HEADER, format!("{} has no waiting mode {name}", strategy.name)))
        }
    }

    /// How it joins the queue of its strategy, which must have one.
    fn manner(&self, conditions: &RequestOptions) -> Result<Manner, Ungrantable> {
        const OFFER: &str = "Holdfast-Offer";
        let wished = [
            (OFFER, &self.offer),
            ("Holdfast-Places", &self.places),
            ("Holdfast-Priority", &self.priority),
        ];
        let strategy = conditions.strategy;
        if strategy.lock != Some(Kind::Queue)
            && let Some((header, _)) = wished.iter().find(|(_, wish)| wish.is_some())
        {
            return Err(Ungrantable(header, format!("{} has no queue", strategy.name)));
        }
        if conditions.wait == Some(Wait::Try) && self.offer.is_some() {
            let why = "with Holdfast-Wait: try nothing is offered to the queue";
            return Err(Ungrantable(OFFER, why.to_owned()));
        }
        let priority = |name: &String| {
            let why = || Ungrantable("Holdfast-Priority", "high or normal".to_owned());
            Priority::named(name).ok_or_else(why)
        };
        let range = 1..=PLACES as u64;
        let places = number("Holdfast-Places", self.places.as_deref(), &range)?;
        Ok(Manner {
            when_full: self.offer.as_deref().map(when_full).transpose()?.unwrap_or_default(),
            priority: self.priority.as_ref().map(priority).transpose()?,
            places: places.and_then(|places| usize::try_from(places).ok()),
        })
    }

    fn probe(
        &self,
        replica: &str,
        board: &Board,
        conditions: &RequestOptions,
    ) -> Result<Probe, Ungrantable> {
        let work = number("Holdfast-Work-Ms", self.work_ms.as_deref(), &(0..=MOST_WORK_MS))?;
        let record = match self.trace.as_deref() {
            None | Some("off") => false,
            Some("on") => true,
            Some(_) => return Err(Ungrantable("Holdfast-Trace", "on or off".to_owned())),
        };
        let pause = match self.pause.as_deref() {
            None => None,
            Some(wish) => Some(pause(wish, conditions.deadline)?),
        };
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

/// `add`, `offer`, `put`, `offer-for` (as long as anybody waits for a lock) or `offer-for:300` (so
/// many milliseconds at most): the names of Java's `BlockingQueue`.
fn when_full(wish: &str) -> Result<WhenFull, Ungrantable> {
    const HEADER: &str = "Holdfast-Offer";
    match wish.split_once(':').unwrap_or((wish, "")) {
        ("add", "") => Ok(WhenFull::Fail),
        ("offer", "") => Ok(WhenFull::Refuse),
        ("put", "") => Ok(WhenFull::Wait),
        ("offer-for", "") => Ok(WhenFull::WaitFor(None)),
        ("offer-for", ms) => {
            let ms = number(HEADER, Some(ms), &(0..=MOST_OFFER_MS))?;
            Ok(WhenFull::WaitFor(ms.map(Duration::from_millis)))
        }
        _ => Err(Ungrantable(HEADER, "one of add, offer, put, offer-for".to_owned())),
    }
}

/// `commit` (until it is let go, or as long as the request may take), `commit:300` (so many
/// milliseconds at most), `every` (at every point).
fn pause(wish: &str, deadline: Instant) -> Result<Pause, Ungrantable> {
    const HEADER: &str = "Holdfast-Pause";
    let (name, bound) = match wish.split_once(':') {
        Some((name, ms)) => (name, number(HEADER, Some(ms), &(0..=8_000))?),
        None => (wish, None),
    };
    let at = Point::named(name);
    if at.is_none() && name != "every" {
        return Err(Ungrantable(HEADER, format!("every, or one of {}", Point::names())));
    }
    Ok(Pause { at, length: bound.map(Duration::from_millis), until: deadline })
}

fn number(
    header: &'static str,
    text: Option<&str>,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Ungrantable> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(Ungrantable(header, format!("a number, {} to {}", range.start(), range.end()))),
    }
}
