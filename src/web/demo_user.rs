//! The demo user whom a page offers to continue as, with one click.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::shop::{Shop, seed};

/// Time for which the answer is kept: it costs the verification of a password.
const KEPT: Duration = Duration::from_mins(5);
/// Time until Postgres is asked again after an error.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// The user to offer: a customer, not the admin.
const NAME: &str = "alice";

/// Remembers whether the demo user exists, with the name as password, and until when.
#[derive(Debug, Default)]
pub struct DemoUser(Mutex<Option<(Instant, bool)>>);

impl DemoUser {
    /// Returns the name of the demo user, which is the password too; `None` if there is no such
    /// user, or Postgres does not respond.
    pub async fn name(&self, shop: &Shop) -> Option<String> {
        let mut known = self.0.lock().await;
        let kept = known.filter(|(until, _)| Instant::now() < *until);
        let exists = match kept {
            Some((_, exists)) => exists,
            None => {
                let found = seed::is_demo_user(&shop.pool, NAME).await;
                let time = if found.is_ok() { KEPT } else { RETRY_DELAY };
                let exists = found.unwrap_or(false);
                *known = Some((Instant::now() + time, exists));
                exists
            }
        };
        exists.then(|| NAME.to_owned())
    }
}
