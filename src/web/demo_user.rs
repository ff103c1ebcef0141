//! The demo user whom a page offers to continue as, with one click.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::shop::{Shop, seed};

/// Time for which the answer is kept: it costs the verification of passwords.
const KEPT: Duration = Duration::from_mins(5);
/// The user to offer: a customer, not the admin.
const NAME: &str = "alice";

/// Remembers whether the demo user exists, with the name as password.
#[derive(Debug, Default)]
pub struct DemoUser(Mutex<Option<(Instant, bool)>>);

impl DemoUser {
    /// Returns the name of the demo user, which is the password too; `None` if there is no such
    /// user, or Postgres does not respond.
    pub async fn name(&self, shop: &Shop) -> Option<String> {
        let mut known = self.0.lock().await;
        if let Some((at, exists)) = *known
            && at.elapsed() < KEPT
        {
            return exists.then(|| NAME.to_owned());
        }
        let users = seed::find_demo_users(&shop.pool).await.ok()?;
        let exists = users.iter().any(|name| name == NAME);
        *known = Some((Instant::now(), exists));
        exists.then(|| NAME.to_owned())
    }
}
