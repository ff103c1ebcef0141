//! The memory of a server that did not respond: not every caller waits for the timeout.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::error::Error;
use super::request::RESPONSE_TIMEOUT;
use crate::time::Instant;

/// Time after a command without a response during which further ones fail at once.
const FAILURE_CACHE_TIME: Duration = Duration::from_millis(250);
/// Failures that come sooner cost their callers nothing, and are not remembered.
const MIN_COST: Duration = RESPONSE_TIMEOUT.checked_div(2).unwrap();

#[derive(Debug, Default)]
struct CommandResults {
    responded_at: Option<Instant>,
    /// The last command without a response, if none was received since it was sent.
    failed: Option<(Instant, Error)>,
}

/// The last results of a connection. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Outage(Arc<Mutex<CommandResults>>);

impl Outage {
    /// Returns the error of a command that failed within the last [`FAILURE_CACHE_TIME`], if the
    /// server has not responded since: another would fail too.
    pub(super) fn recent_failure(&self) -> Option<Error> {
        let last = self.0.lock();
        let recent = last.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_CACHE_TIME);
        recent.map(|(_, error)| error.clone())
    }

    /// Records the result of a command that was sent at `sent`. It is no outage if another command
    /// has received its response since.
    pub(super) fn record<T>(&self, sent: Instant, result: &Result<T, Error>) {
        let now = Instant::now();
        let mut last = self.0.lock();
        match result {
            Err(error) if error.is_unavailable() => {
                let is_silent = last.responded_at.is_none_or(|at| at < sent);
                if is_silent && now - sent >= MIN_COST {
                    last.failed = Some((now, error.clone()));
                }
            }
            _ => *last = CommandResults { responded_at: Some(now), failed: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent() -> Result<(), Error> {
        Err(Error::timed_out())
    }

    #[test]
    fn only_costly_failures_are_remembered() {
        let outage = Outage::default();
        let sent = Instant::now().checked_sub(RESPONSE_TIMEOUT).expect("the clock runs");
        outage.record(Instant::now(), &silent());
        assert!(outage.recent_failure().is_none(), "it failed at once");
        outage.record(sent, &silent());
        assert!(outage.recent_failure().is_some());
        outage.record(sent, &Ok(()));
        assert!(outage.recent_failure().is_none(), "it has responded");
        outage.record(sent, &silent());
        assert!(outage.recent_failure().is_none(), "another got a response meanwhile");
    }
}
