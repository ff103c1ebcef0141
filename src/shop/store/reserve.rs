//! The conditional update of `atomic`: changes a value if the sum is allowed, and returns the row
//! as it was before. It precedes the decision, and a rejection rolls its transaction back.

use sqlx::PgConnection;

use crate::shop::command::Reservation;
use crate::shop::command::state::{BalanceSnapshot, ShopState, StockSnapshot};
use crate::shop::{Sku, UserId};

/// The changed rows, as they were before.
#[derive(Debug, Default)]
pub struct ReservedRows {
    items: Vec<(Sku, StockSnapshot)>,
    account: Option<(UserId, BalanceSnapshot)>,
}

impl ReservedRows {
    /// Replaces the rows in a state that was read afterwards.
    pub fn replace_in(self, state: &mut ShopState) {
        state.items.extend(self.items);
        state.accounts.extend(self.account);
    }
}

/// Changes each value if the sum is allowed, in sorted order. The trigger raises the version.
pub async fn reserve(
    tx: &mut PgConnection,
    reservation: &Reservation,
) -> sqlx::Result<ReservedRows> {
    let mut reserved = ReservedRows::default();
    for (sku, delta) in &reservation.stock {
        let row = sqlx::query!(
            r#"update items set stock = stock + $2
                where sku = $1 and stock + $2 between 0 and 2000000000
               returning price_cents, stock - $2 as "stock!", limit_per_user, version, fence"#,
            sku.as_str(),
            delta,
        );
        if let Some(row) = row.fetch_optional(&mut *tx).await? {
            let snapshot = StockSnapshot {
                price_cents: row.price_cents,
                stock: row.stock,
                limit_per_user: row.limit_per_user,
                version: row.version - 1,
                fence: row.fence,
                reserved: true,
            };
            reserved.items.push((sku.clone(), snapshot));
        }
    }
    if let Some((user, delta)) = reservation.balance {
        let row = sqlx::query!(
            r#"update accounts set balance_cents = balance_cents + $2
                where user_id = $1 and balance_cents + $2 between 0 and 1000000000000000
               returning balance_cents - $2 as "balance_cents!", version, fence"#,
            user.0,
            delta,
        );
        if let Some(row) = row.fetch_optional(&mut *tx).await? {
            let (balance_cents, version, fence) = (row.balance_cents, row.version - 1, row.fence);
            let snapshot = BalanceSnapshot { balance_cents, version, fence, reserved: true };
            reserved.account = Some((user, snapshot));
        }
    }
    Ok(reserved)
}
