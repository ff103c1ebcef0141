//! The lab's request headers, which set the conditions of one request: one table that documents
//! them, the server reads and a lesson sends.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::Wait;
use tokio::time::Instant;
use uuid::Uuid;

use holdfast_base::messages::{Message, message};
use holdfast_shop::locks::{DEFAULT_CAPACITY as MAX_PLACES, Priority, QueueOptions, WhenFull};
use holdfast_shop::probe::{Pause, PauseBoard, Point, Probe, RequestProbe};
use holdfast_shop::sessions::Caller;
use holdfast_shop::{LabOptions, RequestContext, Shop, Strategy, UserId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabHeader {
    pub name: &'static str,
    /// Its valid values and its effect, for people.
    pub values: &'static str,
    pub meaning: &'static str,
}

/// Declares each header as a constant, and [`LAB_HEADERS`].
macro_rules! lab_headers {
    ($($id:ident: $name:literal, $values:literal, $meaning:literal;)*) => {
        $(pub const $id: LabHeader =
            LabHeader { name: $name, values: $values, meaning: $meaning };)*
        pub const LAB_HEADERS: &[LabHeader] = &[$($id),*];
    };
}

lab_headers! {
    LOCK: "Holdfast-Lock", "a strategy", "strategy of the request; default: the server's";
    WAIT: "Holdfast-Wait", "try, retry, notify",
        "when the lock is held: return 423 at once; poll; or join the queue";
    RETRY_MS: "Holdfast-Retry-Ms", "1 to 1,000", "interval of retries, with `Holdfast-Wait: retry`";
    OFFER: "Holdfast-Offer", "add, offer, put, offer-for, offer-for:MS",
        "under `queue`, when the queue is full: fail with 503 (default); return 423; wait for a \
         place; wait for at most MS (0 to 7,000; default: the lock timeout)";
    PLACES: "Holdfast-Places", "1 to 1,024",
        "under `queue`: capacity per priority, if the request creates the queue";
    PRIORITY: "Holdfast-Priority", "high, normal",
        "under `queue`: default high for commands that return units or money, otherwise normal";
    WORK_MS: "Holdfast-Work-Ms", "0 to 5,000", "extra work between read and write";
    TTL_MS: "Holdfast-Ttl-Ms", "10 to 60,000", "lease of the lock";
    RENEW: "Holdfast-Renew", "on, off (with Holdfast-Ttl-Ms)",
        "off: nobody renews the lock, as if its holder's process were paused";
    TRACE: "Holdfast-Trace", "on, off",
        "adds `trace` to the response: each probe point with time, replica, key, value and fence";
    PAUSE: "Holdfast-Pause", "POINT, POINT:MS, every",
        "pauses the request at a probe point, for at most MS (0 to 8,000), until it is resumed";
    PAYMENT_WINDOW_MS: "Holdfast-Pay-Within-Ms", "1 to 3,600,000",
        "time for which the order keeps its units unpaid";
}

const PREFIX: &str = "Holdfast-";
pub const TTL_RANGE_MS: RangeInclusive<u64> = 10..=60_000;
pub const RETRY_RANGE_MS: RangeInclusive<u64> = 1..=1_000;

#[derive(Debug, Clone, Default)]
pub struct LabHeaders(Vec<(&'static str, String)>);

/// An invalid header: its name and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabHeaderError(pub &'static str, pub Message);

impl LabHeaders {
    /// Returns the headers of a lab's own request: traced, under a strategy.
    pub fn under(strategy: &str) -> Self {
        Self::default().with(LOCK, strategy).with(TRACE, "on")
    }

    #[must_use]
    pub fn with(mut self, header: LabHeader, value: impl ToString) -> Self {
        self.0.push((header.name, value.to_string()));
        self
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    /// Reads them from the headers of a request, most of which have none: one pass costs less than
    /// to look up each of the table. Of several lines with one name, the first counts.
    pub fn read<'n, V, E>(
        headers: impl IntoIterator<Item = (&'n str, V)>,
        text: impl Fn(&'static str, V) -> Result<String, E>,
    ) -> Result<Self, E> {
        let mut present = Self::default();
        for (name, value) in headers {
            let known = LAB_HEADERS.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            if let Some(header) = known
                && present.value(*header).is_none()
            {
                present.0.push((header.name, text(header.name, value)?));
            }
        }
        Ok(present)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn value(&self, header: LabHeader) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == header.name).map(|(_, value)| value.as_str())
    }

    fn number(
        &self,
        header: LabHeader,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, LabHeaderError> {
        self.value(header).map(|text| header.number(text, range)).transpose()
    }

    /// Returns the context of a request with these headers. Without an admin who sets them, they
    /// apply to lab items only.
    pub fn context(
        &self,
        shop: &Shop,
        replica: &str,
        board: &PauseBoard,
        request_id: Uuid,
        caller: Option<&Caller>,
    ) -> Result<RequestContext, LabHeaderError> {
        let mut context = RequestContext::new(shop, request_id);

        if let Some(name) = self.value(LOCK) {
            context.strategy = Strategy::named(name).ok_or_else(|| {
                LabHeaderError(LOCK.name, message!("problem-one-of", names = Strategy::names()))
            })?;
            if context.strategy.lock.is_some_and(|kind| !shop.locks.is_configured(kind)) {
                let why = message!("problem-no-redlock", name);
                return Err(LabHeaderError(LOCK.name, why));
            }
        }

        let wait = self.wait(context.strategy)?;
        let queue = self.queue_options()?;
        let retry = self.number(RETRY_MS, RETRY_RANGE_MS)?.map(Duration::from_millis);
        context.ttl = self.number(TTL_MS, TTL_RANGE_MS)?.map(Duration::from_millis);
        if let Some(period_ms) = self.number(PAYMENT_WINDOW_MS, 1..=3_600_000)? {
            context.payment_window = Duration::from_millis(period_ms);
        }

        let owner = caller.map(|caller| caller.id);
        let lab = LabOptions {
            wait,
            retry,
            max_hold: self.max_hold()?,
            queue,
            probe: self.probe(replica, board, &context, owner)?,
            lab_items_only: caller.is_none_or(|caller| !caller.admin),
        };
        Ok(RequestContext { lab: Some(Arc::new(lab)), ..context })
    }

    /// Returns how long the lock is renewed, if not as the server says.
    fn max_hold(&self) -> Result<Option<Duration>, LabHeaderError> {
        match self.value(RENEW) {
            None | Some("on") => Ok(None),
            // With a lease of its own, it is executed by itself, and on items of the lab only.
            Some("off") if self.value(TTL_MS).is_some() => Ok(Some(Duration::ZERO)),
            Some(_) => Err(RENEW.invalid()),
        }
    }

    fn wait(&self, strategy: &Strategy) -> Result<Option<Wait>, LabHeaderError> {
        let Some(name) = self.value(WAIT) else { return Ok(None) };
        let wait = Wait::named(name).ok_or_else(|| WAIT.invalid())?;
        if strategy.waits().contains(&wait) {
            Ok(Some(wait))
        } else {
            let why = message!("problem-no-such-wait", strategy = strategy.name, name);
            Err(LabHeaderError(WAIT.name, why))
        }
    }

    fn queue_options(&self) -> Result<QueueOptions, LabHeaderError> {
        if self.value(WAIT) == Some("try") && self.value(OFFER).is_some() {
            return Err(LabHeaderError(OFFER.name, message!("problem-no-effect-with-try")));
        }

        let places = self.number(PLACES, 1..=MAX_PLACES as u64)?;
        Ok(QueueOptions {
            when_full: self.value(OFFER).map(when_full).transpose()?.unwrap_or_default(),
            priority: self.value(PRIORITY).map(priority).transpose()?,
            capacity: places.and_then(|places| usize::try_from(places).ok()),
        })
    }

    fn probe(
        &self,
        replica: &str,
        board: &PauseBoard,
        context: &RequestContext,
        owner: Option<UserId>,
    ) -> Result<Probe, LabHeaderError> {
        let work = self.number(WORK_MS, 0..=5_000)?;
        let record = match self.value(TRACE) {
            None | Some("off") => false,
            Some("on") => true,
            Some(_) => return Err(TRACE.invalid()),
        };
        let pause = self.value(PAUSE).map(|value| pause(value, context.deadline)).transpose()?;
        if work.is_none() && !record && pause.is_none() {
            return Ok(Probe::Off);
        }

        let owner = owner.map(|owner| owner.0);
        let permit = pause.and_then(|_| board.permit(owner.unwrap_or_default()));
        Ok(Probe::Lab(Arc::new(RequestProbe {
            work: Duration::from_millis(work.unwrap_or(0)),
            record,
            pause,
            is_refused: pause.is_some() && permit.is_none(),
            permit,
            owner,
            ..RequestProbe::new(replica, context.request_id, board)
        })))
    }
}

impl LabHeader {
    fn invalid(self) -> LabHeaderError {
        LabHeaderError(self.name, message!("problem-valid-values", values = self.values))
    }

    fn number(self, text: &str, range: RangeInclusive<u64>) -> Result<u64, LabHeaderError> {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.invalid())
    }
}

/// Returns the first name that begins as those of [`LAB_HEADERS`] do and is none of them, and why
/// it is wrong: if it were ignored, a misspelt header would have no effect unnoticed.
pub fn unknown_header<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<(&'n str, Message)> {
    let is_unknown = |name: &str| {
        let prefix = name.get(..PREFIX.len());
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX))
            && !LAB_HEADERS.iter().any(|header| header.name.eq_ignore_ascii_case(name))
    };
    let unknown = names.into_iter().find(|name| is_unknown(name))?;

    let known: Vec<&str> = LAB_HEADERS.iter().map(|header| header.name).collect();
    Some((unknown, message!("problem-no-lab-header", names = known.join(", "))))
}

fn priority(name: &str) -> Result<Priority, LabHeaderError> {
    Priority::named(name).ok_or_else(|| PRIORITY.invalid())
}

/// Parses the names of Java's `BlockingQueue`.
fn when_full(value: &str) -> Result<WhenFull, LabHeaderError> {
    match value.split_once(':').unwrap_or((value, "")) {
        ("add", "") => Ok(WhenFull::Fail),
        ("offer", "") => Ok(WhenFull::Reject),
        ("put", "") => Ok(WhenFull::Wait),
        ("offer-for", "") => Ok(WhenFull::WaitFor(None)),
        ("offer-for", ms) => {
            let ms = OFFER.number(ms, 0..=7_000)?;
            Ok(WhenFull::WaitFor(Some(Duration::from_millis(ms))))
        }
        _ => Err(OFFER.invalid()),
    }
}

/// Parses `commit`, `commit:300` (for at most 300 ms) or `every` (paused at every point).
fn pause(value: &str, deadline: Instant) -> Result<Pause, LabHeaderError> {
    let (name, bound) = match value.split_once(':') {
        Some((name, ms)) => (name, Some(PAUSE.number(ms, 0..=8_000)?)),
        None => (value, None),
    };
    let at = Point::named(name);
    if at.is_none() && name != "every" {
        let why = message!("problem-every-or-one-of", names = Point::names());
        return Err(LabHeaderError(PAUSE.name, why));
    }
    Ok(Pause { at, length: bound.map(Duration::from_millis), until: deadline })
}
