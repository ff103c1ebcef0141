//! The conditional update of `atomic`: changes a value if the sum is allowed, and returns the row
//! as it was before. The trigger raises the version. The update precedes the decision, and a
//! rejection rolls its transaction back.
//!
//! `check-then-decrement` has checked a read from before, and sends the update without the
//! condition.

use std::sync::Arc;

use sqlx::PgConnection;

use super::read::{ReadRequest, ReadSnapshot, read};
use crate::command::ConditionalUpdate;
use crate::command::state::{BalanceSnapshot, StockSnapshot};
use crate::model::ItemNames;

pub async fn update_and_read(
    tx: &mut PgConnection,
    update: &ConditionalUpdate,
    request: &ReadRequest,
    is_conditional: bool,
) -> sqlx::Result<ReadSnapshot> {
    // An update locks its row: sorted items, then the account, as every write locks them. The
    // bounds are those of constraints, whose violation is an error that aborts the transaction.
    let mut items = Vec::new();
    for (sku, delta) in &update.stock {
        let row = sqlx::query!(
            r#"update items
                  set stock = stock + $2, sold = sold - case when $3 then 0 else $2 end,
                      restocked = restocked + case when $3 then $2 else 0 end
                where sku = $1 and (not $4 or stock + $2 between 0 and 2000000000)
               returning name, name_zh, price_cents, stock - $2 as "stock!", limit_per_user,
                         hidden, version, fence"#,
            sku.as_str(),
            delta,
            update.restocks,
            is_conditional,
        );
        let Some(row) = row.fetch_optional(&mut *tx).await? else { continue };

        let before = StockSnapshot {
            names: Arc::new(ItemNames { name: row.name, name_zh: row.name_zh }),
            price_cents: row.price_cents,
            stock: row.stock,
            limit_per_user: row.limit_per_user,
            hidden: row.hidden,
            version: row.version - 1,
            fence: row.fence,
            is_updated: true,
        };
        items.push((sku.clone(), before));
    }

    let mut account = None;
    if let Some((user, delta)) = update.balance {
        let row = sqlx::query!(
            r#"update accounts set balance_cents = balance_cents + $2
                where user_id = $1
                  and (not $3 or balance_cents + $2 between 0 and 1000000000000000)
               returning balance_cents - $2 as "balance_cents!", version, fence"#,
            user.0,
            delta,
            is_conditional,
        );
        account = row.fetch_optional(&mut *tx).await?.map(|row| {
            let version = row.version - 1;
            let fence = row.fence;
            let balance_cents = row.balance_cents;
            (user, BalanceSnapshot { balance_cents, version, fence, is_updated: true })
        });
    }

    // The decision is on the values from before. A row that did not match explains its rejection.
    let mut snapshot = read(tx, request).await?;
    snapshot.state.items.extend(items);
    snapshot.state.accounts.extend(account);
    Ok(snapshot)
}
