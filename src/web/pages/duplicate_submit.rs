//! Duplicate forms: the second copy waits for the response of the first, for a bounded time,
//! instead of showing a person that the request is in flight.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::form_errors::FormErrors;
use crate::shop::{Execution, Failure, Rejection};
use crate::web::Problem;

/// Longest wait of a second copy; shorter than a request's timeout, so it ends as a rejection.
pub(super) const DUPLICATE_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(60);

/// Repeats the request until no other copy is in flight; the key ensures one execution.
pub(super) async fn execute_once(
    mut execute: impl AsyncFnMut() -> Result<Execution, Failure>,
) -> Result<Execution, Failure> {
    let until = Instant::now() + DUPLICATE_TIMEOUT;
    loop {
        let result = execute().await;
        let in_flight = matches!(result, Err(Failure::Rejected(Rejection::KeyInFlight)));
        if !in_flight || Instant::now() >= until {
            return result;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Submits a form's command, once per key. The errors are empty if it was executed, now or by an
/// earlier copy of the form.
pub(super) async fn submit(
    execute: impl AsyncFnMut() -> Result<Execution, Failure>,
) -> Result<FormErrors, Problem> {
    match execute_once(execute).await {
        Ok(_) | Err(Failure::Rejected(Rejection::KeyUsed { .. })) => Ok(FormErrors::default()),
        Err(Failure::Rejected(Rejection::NotFound(what))) => Err(Problem::missing(what)),
        Err(Failure::Rejected(rejection)) => Ok(rejection.into()),
        Err(Failure::Error(error)) => Err(error.into()),
    }
}
