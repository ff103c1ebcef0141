//! The contended value of an arm: an item's stock, or an account's balance.

use serde_json::Value;

use super::arm_spec::ArmSpec;
use super::run::{ArmResult, ForkedVersion};
use super::scenario::Scenario;
use crate::shop::{Sku, UserId};

pub(super) const PRICE_CENTS: i64 = 100;
const MAX_FORKS: i64 = 12;

#[derive(Debug, Clone)]
pub(super) enum ContendedValue {
    Item(Sku),
    Account(UserId),
}

/// Reads the forks of one key of a ledger.
macro_rules! forks {
    ($lab:expr, $ledger:literal, $key:expr) => {{
        let rows = sqlx::query!(
            r#"select version, min(before) as "before!",
                      jsonb_agg(to_jsonb(l) order by seq) as "entries!" from "#
                + $ledger
                + " = $1 group by version having count(*) > 1 order by version limit $2",
            $key,
            MAX_FORKS,
        );
        let rows = rows.fetch_all(&mut *$lab.connection().await?).await?;
        rows.into_iter().map(|row| fork(row.version, row.before, row.entries)).collect()
    }};
}

impl ContendedValue {
    /// Measures it by its ledger, during the load and after it.
    pub(super) async fn measure(
        &self,
        lab: &Scenario,
        spec: &ArmSpec,
    ) -> anyhow::Result<ArmResult> {
        let orders = i64::try_from(spec.orders)?;
        match self {
            ContendedValue::Item(sku) => Ok(ArmResult::of_item(&lab.audit(sku).await?, orders)),
            ContendedValue::Account(user) => audit_account(lab, *user, orders * PRICE_CENTS).await,
        }
    }

    /// Returns the first forks, with the requests that caused them.
    pub(super) async fn forks(&self, lab: &Scenario) -> anyhow::Result<Vec<ForkedVersion>> {
        match self {
            ContendedValue::Item(sku) => {
                forks!(lab, "stock_ledger l where sku", sku.as_str())
            }
            ContendedValue::Account(user) => {
                forks!(lab, "balance_ledger l where user_id", user.0)
            }
        }
    }
}

async fn audit_account(lab: &Scenario, user: UserId, price: i64) -> anyhow::Result<ArmResult> {
    let row = sqlx::query!(
        r#"with chain as (
               select before, delta, reason,
                      lag(after, 1, 0) over chain as previous,
                      sum(delta) over chain as running
                 from balance_ledger where user_id = $1
               window chain as (order by version, seq)
           )
           select (select balance_cents from accounts where user_id = $1) as "balance!",
                  coalesce(sum(delta), 0)::bigint as "total!",
                  coalesce(-sum(delta) filter (where reason = 'payment'), 0)::bigint as "paid!",
                  coalesce(greatest(0, -min(running)), 0)::bigint as "overspent!",
                  count(*) filter (where before <> previous) as "breaks!",
                  (select count(*) from (select from balance_ledger where user_id = $1
                                          group by version having count(*) > 1) f) as "forks!"
             from chain"#,
        user.0,
    )
    .fetch_one(&mut *lab.connection().await?)
    .await?;
    let (drift, opening) = (row.balance - row.total, row.total + row.paid);
    Ok(ArmResult {
        stock_opening: opening,
        undersold: (opening.min(price) - row.paid).max(0),
        sold: row.paid,
        stock: row.balance,
        oversold: row.overspent,
        drift,
        breaks: row.breaks,
        forks: row.forks,
        ok: drift == 0 && row.breaks == 0,
        ..ArmResult::default()
    })
}

fn fork(version: i64, before: i64, entries: Value) -> anyhow::Result<ForkedVersion> {
    Ok(ForkedVersion { version, before, entries: serde_json::from_value(entries)? })
}
