//! The conditional update of `atomic`: changes a value if the sum is allowed, and returns the row
//! as it was before. It precedes the decision, and a rejection rolls its transaction back.

use sqlx::PgConnection;

use super::read::{ReadRequest, ReadSnapshot, read};
use crate::command::ConditionalUpdate;
use crate::command::state::{BalanceSnapshot, StockSnapshot};

/// Changes each value if the sum is allowed, in sorted order, and reads. The trigger raises the
/// version.
pub async fn execute_and_read(
    tx: &mut PgConnection,
    update: &ConditionalUpdate,
    request: &ReadRequest,
) -> sqlx::Result<ReadSnapshot> {
    let (mut items, mut account) = (Vec::new(), None);
    for (sku, delta) in &update.stock {
        let row = sqlx::query!(
            r#"update items
                  set stock = stock + $2, sold = sold - case when $3 then 0 else $2 end,
                      restocked = restocked + case when $3 then $2 else 0 end
                where sku = $1 and stock + $2 between 0 and 2000000000
               returning price_cents, stock - $2 as "stock!", limit_per_user, version, fence"#,
            sku.as_str(),
            delta,
            update.restocks,
        );
        if let Some(row) = row.fetch_optional(&mut *tx).await? {
            let snapshot = StockSnapshot {
                price_cents: row.price_cents,
                stock: row.stock,
                limit_per_user: row.limit_per_user,
                version: row.version - 1,
                fence: row.fence,
                is_updated: true,
            };
            items.push((sku.clone(), snapshot));
        }
    }
    if let Some((user, delta)) = update.balance {
        let row = sqlx::query!(
            r#"update accounts set balance_cents = balance_cents + $2
                where user_id = $1 and balance_cents + $2 between 0 and 1000000000000000
               returning balance_cents - $2 as "balance_cents!", version, fence"#,
            user.0,
            delta,
        );
        if let Some(row) = row.fetch_optional(&mut *tx).await? {
            let (balance_cents, version, fence) = (row.balance_cents, row.version - 1, row.fence);
            let snapshot = BalanceSnapshot { balance_cents, version, fence, is_updated: true };
            account = Some((user, snapshot));
        }
    }
    let mut snapshot = read(tx, request).await?;
    snapshot.state.items.extend(items);
    snapshot.state.accounts.extend(account);
    Ok(snapshot)
}
