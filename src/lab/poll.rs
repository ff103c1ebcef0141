//! Bounded waits for a condition.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Repeats `attempt` until it returns a value; fails after 20 s. `what` completes the error, “timed
/// out waiting until …”.
pub async fn poll<T>(
    what: &str,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let end = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = attempt().await? {
            return Ok(value);
        }
        ensure!(Instant::now() < end, "timed out waiting until {what}");
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits until `condition` holds; fails as [`poll`] does.
pub async fn wait_until(
    what: &str,
    mut condition: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    poll(what, async || Ok(condition().await?.then_some(()))).await
}
