//! Settings of the locks of one process.

use std::sync::Arc;
use std::time::Duration;

use crate::key::hash_tag;
use crate::observer::Observer;
use crate::{Error, fenced};

/// Shortest lease: from each, 1 % and 2 ms are taken for clock drift.
const MIN_TTL: Duration = Duration::from_millis(10);
/// Longest lease: Redis keeps the fence counter of a key as long.
const MAX_TTL: Duration = Duration::from_hours(24);
/// Shortest pause between two calls to Redis.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// Longest interval of polls; Redis keeps the queue of a key for six.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Timing of the locks, and the location of their keys. Made by [`Settings::default`] and the
/// methods, or by assigning the fields; checked by [`crate::Locks::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Start of every Redis key, `holdfast:` by default.
    pub key_prefix: String,
    /// Name of the process, shown as the holder. Without a name, the first eight digits of its UUID
    /// are shown.
    pub name: Option<String>,
    /// Duration of a lease, 10 ms to 24 h, of all kinds but the fenced lock, which has its own
    /// ([`fenced::Timing::ttl`]): it does not matter to [`crate::Locks::lock`].
    pub ttl: Duration,
    /// Mean pause between two attempts of a waiter, at least 1 ms; jitter varies it by up to half.
    pub retry_interval: Duration,
    /// Maximum time to wait for a lock; with zero, each acquisition is a single attempt. With
    /// [`Duration::MAX`] it ends only with the deadline of the request.
    pub acquire_timeout: Duration,
    /// Time after its acquisition for which a lock is renewed, so that a holder that hangs does not
    /// block the others for ever. `None`, the default, renews it until it is released.
    pub max_hold: Option<Duration>,
    /// Timing of the fenced lock.
    pub fenced: fenced::Timing,
    /// Receives the events of the locks, of every kind.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            key_prefix: "holdfast:".to_owned(),
            name: None,
            // Longer than most work: `LockKind::Owner` does not renew its lease.
            ttl: Duration::from_secs(10),
            retry_interval: Duration::from_millis(50),
            acquire_timeout: Duration::from_secs(5),
            max_hold: None,
            fenced: fenced::Timing::default(),
            observer: None,
        }
    }
}

impl Settings {
    /// Replaces [`Settings::key_prefix`].
    #[must_use]
    pub fn with_key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Replaces [`Settings::name`].
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Replaces [`Settings::ttl`].
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Replaces [`Settings::retry_interval`].
    #[must_use]
    pub fn with_retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = interval;
        self
    }

    /// Replaces [`Settings::acquire_timeout`].
    #[must_use]
    pub fn with_acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// Replaces [`Settings::max_hold`].
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Replaces [`Settings::fenced`].
    #[must_use]
    pub fn with_fenced(mut self, timing: fenced::Timing) -> Self {
        self.fenced = timing;
        self
    }

    /// Replaces [`Settings::observer`].
    #[must_use]
    pub fn with_observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let fenced::Timing { ttl, grant_ttl, poll_interval, .. } = self.fenced;
        check_ttl(self.ttl)?;
        check_ttl(ttl)?;
        check_ttl(grant_ttl)?;

        check(self.retry_interval >= MIN_PAUSE, "retry_interval must be at least 1 ms")?;
        check(
            (MIN_PAUSE..=MAX_POLL_INTERVAL).contains(&poll_interval),
            "fenced.poll_interval must be 1 ms to 10 s",
        )?;
        check(
            poll_interval * 2 < grant_ttl,
            "fenced.grant_ttl must be more than twice fenced.poll_interval",
        )?;

        // `{}` would hide the hash tags of all keys.
        let key = format!("{}{{key}}", self.key_prefix);
        check(hash_tag(key.as_bytes()).is_some(), "key_prefix must not contain {}")
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Error> {
    check((MIN_TTL..=MAX_TTL).contains(&ttl), "a lease must last 10 ms to 24 h")
}

fn check(holds: bool, rule: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::InvalidSettings(rule)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_rejected() {
        let (zero, ms) = (Duration::ZERO, Duration::from_millis);
        let fenced = |change: fn(&mut fenced::Timing)| {
            let mut settings = Settings::default();
            change(&mut settings.fenced);
            settings
        };
        for settings in [
            Settings { ttl: zero, ..Settings::default() },
            Settings { ttl: Duration::MAX, ..Settings::default() },
            Settings { retry_interval: zero, ..Settings::default() },
            Settings { key_prefix: "{}".to_owned(), ..Settings::default() },
            fenced(|timing| timing.ttl = Duration::ZERO),
            fenced(|timing| timing.poll_interval = Duration::ZERO),
            fenced(|timing| timing.poll_interval = timing.grant_ttl / 2),
            fenced(|timing| timing.poll_interval = Duration::MAX),
        ] {
            assert!(matches!(settings.validate(), Err(Error::InvalidSettings(_))), "{settings:?}");
        }
        for settings in [
            Settings::default(),
            Settings {
                acquire_timeout: zero,
                retry_interval: ms(1),
                ttl: ms(10),
                ..Settings::default()
            },
            Settings { key_prefix: String::new(), ..Settings::default() },
            Settings { key_prefix: "{shop}:".to_owned(), ..Settings::default() },
        ] {
            settings.validate().unwrap();
        }
    }
}
