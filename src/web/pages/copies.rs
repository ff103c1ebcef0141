//! A form that was sent twice: the second copy waits for the first one's answer, for a bounded
//! time, instead of telling a person that the same thing is being worked on.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::shop::{Executed, Failure, Rejection};

/// How long a second copy waits. Less than a request may take, so that it is told as a refusal.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
pub(super) const PAUSE: Duration = Duration::from_millis(60);

/// Repeats the request until no other copy is in flight; the key ensures one execution.
pub(super) async fn settled(
    mut ask: impl AsyncFnMut() -> Result<Executed, Failure>,
) -> Result<Executed, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let result = ask().await;
        let in_flight = matches!(result, Err(Failure::Rejected(Rejection::KeyInFlight)));
        if !in_flight || Instant::now() >= until {
            return result;
        }
        sleep(PAUSE).await;
    }
}
