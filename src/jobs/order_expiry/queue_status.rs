//! The status of order expiry, for the page and the API.

use serde::Serialize;
use utoipa::ToSchema;

use super::OrderExpiry;
use super::failures::{self, ExpiryFailure};
use crate::shop::{Error, Shop};

const MAX_LISTED_FAILURES: i64 = 50;

/// The status of order expiry.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExpiryStatus {
    /// Orders in the delay queue, including those paid since; null if Redis does not respond.
    pub queued: Option<usize>,
    /// Orders that are due and have not expired yet.
    pub due: i64,
    /// Failed expiries: parked ones first, then the latest; 50 at most.
    pub failures: Vec<ExpiryFailure>,
}

impl OrderExpiry {
    pub async fn status(&self, shop: &Shop) -> Result<ExpiryStatus, Error> {
        let due = sqlx::query_scalar!(
            r#"select count(*) as "count!" from orders
                where status = 'pending' and expires_at <= now()"#
        )
        .fetch_one(&mut *shop.connection().await?)
        .await?;
        let queued = self.queue().lengths().await.ok().map(|(all, _)| all);
        Ok(ExpiryStatus { queued, due, failures: failures::list(shop, MAX_LISTED_FAILURES).await? })
    }
}
