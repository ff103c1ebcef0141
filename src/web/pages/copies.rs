//! A form that was sent twice: the second copy waits for the first one's answer, for a bounded
//! time, instead of telling a person that the same thing is being worked on.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::shop::{Error, Outcome, Refusal};

/// How long a second copy waits. Less than a request may take, so that it is told as a refusal.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How often it looks.
pub(super) const PAUSE: Duration = Duration::from_millis(60);

/// Asks until no other copy is in flight; the key sees to it that the work is done once.
///
/// # Errors
/// What is broken.
pub(super) async fn settled(
    mut ask: impl AsyncFnMut() -> Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        let outcome = ask().await?;
        let in_flight = matches!(outcome, Outcome::Refused(Refusal::KeyInFlight));
        if !in_flight || Instant::now() >= until {
            return Ok(outcome);
        }
        sleep(PAUSE).await;
    }
}
