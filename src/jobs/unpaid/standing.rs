//! How the unpaid orders stand, for the page and for the API alike.

use serde::Serialize;
use utoipa::ToSchema;

use super::Unpaid;
use super::failures::{self, Failure};
use crate::shop::{Error, Shop};

const SHOWN: i64 = 50;

/// How the unpaid orders stand.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnpaidStanding {
    /// How many orders the delay queue has, those among them that were paid meanwhile; null when
    /// Redis does not answer.
    pub queued: Option<usize>,
    /// How many are due now, and were not given back yet.
    pub due: i64,
    /// Those that could not be given back: parked ones first, then the latest; 50 at most.
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
