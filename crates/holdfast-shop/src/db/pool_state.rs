//! Results of the last calls of a pool: they distinguish a Postgres that is unavailable from one
//! that is busy.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct PoolState {
    /// Number of connections that callers have.
    pub(super) in_use: AtomicU32,
    /// True while a commit does not end, though Postgres responds.
    pub(super) commits_wait: AtomicBool,
    last_results: Mutex<LastResults>,
    failure: Notify,
}

/// Time without a response after which Postgres is silent.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct LastResults {
    responded_at: Option<Instant>,
    /// The last failure since the last response, and its cause.
    failed: Option<(Instant, String)>,
    /// The begin of the first call after the last response or failure.
    unanswered_since: Option<Instant>,
}

impl LastResults {
    /// Returns whether the last response is from before `began`, or older than [`SILENCE`]: other
    /// calls may have received theirs just before Postgres fell silent.
    fn is_silent_since(&self, began: Instant) -> bool {
        self.responded_at.is_none_or(|at| at < began || at.elapsed() >= SILENCE)
    }
}

impl PoolState {
    pub(super) fn record_response(&self) {
        let responded_at = Some(Instant::now());
        *self.last_results.lock() = LastResults { responded_at, ..LastResults::default() };
    }

    /// Records that a call begins, and returns since when calls have received no response.
    pub(super) fn record_begin(&self) -> Instant {
        let now = Instant::now();
        *self.last_results.lock().unanswered_since.get_or_insert(now)
    }

    /// Records the failure of a call. With a `cause` it is an outage, if Postgres is silent since
    /// the call began. Returns whether an outage begins.
    pub(super) fn record_failure(&self, began: Instant, cause: Option<String>) -> bool {
        let mut last = self.last_results.lock();
        // Later calls must not inherit the deadline of those that have failed.
        last.unanswered_since = None;
        let Some(cause) = cause.filter(|_| last.is_silent_since(began)) else { return false };

        self.failure.notify_waiters();
        last.failed.replace((Instant::now(), cause)).is_none()
    }

    /// Returns whether a call failed, and none has received a response since.
    pub(super) fn is_outage(&self) -> bool {
        self.last_results.lock().failed.is_some()
    }

    /// Waits for a failure at `from` or later that follows the last response.
    pub(super) async fn failure_from(&self, from: Instant) {
        loop {
            // Before the look: a failure between the two is not missed.
            let notified = self.failure.notified();
            if self.last_results.lock().failed.as_ref().is_some_and(|(at, _)| *at >= from) {
                return;
            }
            notified.await;
        }
    }

    /// Returns the cause of a failure that is at most `age` old and follows the last response.
    pub(super) fn failure_within(&self, age: Duration) -> Option<String> {
        let last = self.last_results.lock();
        last.failed.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, cause)| cause.clone())
    }

    pub(super) fn is_silent_since(&self, began: Instant) -> bool {
        self.last_results.lock().is_silent_since(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call is in flight when another receives the last response before the silence.
    #[test]
    fn response_just_before_silence_hides_no_failure() {
        let ago = |ms| Instant::now() - Duration::from_millis(ms);
        let responded = |ms| LastResults { responded_at: Some(ago(ms)), ..LastResults::default() };
        assert!(responded(1_490).is_silent_since(ago(1_500)));
        assert!(responded(1_510).is_silent_since(ago(1_500)));
        assert!(!responded(500).is_silent_since(ago(1_500)));
        assert!(responded(510).is_silent_since(ago(500)));
    }

    #[test]
    fn calls_without_response_share_their_begin() {
        let state = PoolState::default();
        let first = state.record_begin();
        assert_eq!(state.record_begin(), first);
        state.record_response();
        let second = state.record_begin();
        assert!(second > first);
        assert!(!state.record_failure(second, None));
        assert!(state.record_begin() > second);
    }

    #[test]
    fn outage_lasts_until_a_response() {
        let state = PoolState::default();
        let fail = || state.record_failure(Instant::now(), Some("refused".to_owned()));
        assert!(fail());
        assert!(!fail() && state.is_outage());
        state.record_response();
        assert!(!state.is_outage() && fail());
    }
}
