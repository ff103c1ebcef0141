//! The demo user whom a page offers to continue as, with one click.

use std::time::Duration;

use moka::future::Cache;

use holdfast_shop::{Shop, seed};

/// Time for which the answer is kept: it costs the verification of a password.
const KEPT: Duration = Duration::from_mins(5);
const NAME: &str = "alice";

/// Remembers whether the demo user exists, with the name as password.
#[derive(Debug)]
pub struct DemoUser(Cache<(), bool>);

impl Default for DemoUser {
    fn default() -> Self {
        Self(Cache::builder().time_to_live(KEPT).build())
    }
}

impl DemoUser {
    /// Returns the name of the demo user, which is the password too; `None` if there is no such
    /// user, or Postgres does not respond.
    pub async fn name(&self, shop: &Shop) -> Option<String> {
        let exists = self.0.try_get_with((), seed::is_demo_user(&shop.pool, NAME)).await;
        exists.unwrap_or(false).then(|| NAME.to_owned())
    }
}
