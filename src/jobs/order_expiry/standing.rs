//! The status of order expiry, for the page and the API.

use serde::Serialize;
use utoipa::ToSchema;

use super::Unpaid;
use super::failures::{self, Failure};
use crate::shop::{Error, Shop};

const SHOWN: i64 = 50;

/// The status of order expiry.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnpaidStanding {
    /// Orders in the delay queue, including those paid since; null if Redis does not respond.
    pub queued: Option<usize>,
    /// Orders that are due and have not expired yet.
    pub due: i64,
    /// Failed expiries: parked ones first, then the latest; 50 at most.
    pub failures: Vec<Failure>,
}

impl Unpaid {
    pub async fn standing(&self, shop: &Shop) -> Result<UnpaidStanding, Error> {
        let due = sqlx::query_scalar!(
            r#"select count(*) as "count!" from orders
                where status = 'pending' and expires_at <= now()"#
        )
        .fetch_one(&mut *shop.connection().await?)
        .await?;
        let queued = self.queue().lengths().await.ok().map(|(all, _)| all);
        Ok(UnpaidStanding { queued, due, failures: failures::list(shop, SHOWN).await? })
    }
}
