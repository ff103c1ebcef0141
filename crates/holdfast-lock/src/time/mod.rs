//! The timers and the time of tokio. A unit test may run on a clock of its own, which moves only
//! when no task can run (`virtual_clock`).

#[cfg(test)]
pub(crate) mod virtual_clock;

#[cfg(not(test))]
pub(crate) use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
#[cfg(test)]
pub(crate) use virtual_clock::{Instant, sleep, sleep_until, timeout, timeout_at};
