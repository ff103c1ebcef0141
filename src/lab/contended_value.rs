//! The contended value of an arm, an item's stock or an account's balance: its current state, and
//! its audit after the load.

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

/// The remaining stock or balance, and the amount sold according to the ledger.
pub(super) struct ValueSnapshot {
    pub(super) stock: i64,
    pub(super) sold: i64,
}

impl ContendedValue {
    pub(super) async fn read(&self, lab: &Scenario) -> anyhow::Result<ValueSnapshot> {
        let mut connection = lab.connection().await?;
        Ok(match self {
            ContendedValue::Item(sku) => {
                let row = sqlx::query!(
                    r#"select stock, (select coalesce(-sum(delta), 0)::bigint from stock_ledger l
                                       where l.sku = i.sku and order_id is not null) as "sold!"
                         from items i where sku = $1"#,
                    sku.as_str(),
                )
                .fetch_one(&mut *connection)
                .await?;
                ValueSnapshot { stock: row.stock, sold: row.sold }
            }
            ContendedValue::Account(user) => {
                let row = sqlx::query!(
                    r#"select balance_cents,
                              (select coalesce(-sum(delta), 0)::bigint from balance_ledger l
                                where l.user_id = a.user_id and reason = 'payment') as "paid!"
                         from accounts a where user_id = $1"#,
                    user.0,
                )
                .fetch_one(&mut *connection)
                .await?;
                ValueSnapshot { stock: row.balance_cents, sold: row.paid }
            }
        })
    }

    pub(super) async fn audit(
        &self,
        lab: &Scenario,
        spec: &ArmSpec,
        opening: i64,
    ) -> anyhow::Result<ArmResult> {
        let orders = i64::try_from(spec.orders)?;
        let measured = match self {
            ContendedValue::Item(sku) => {
                let forked = stock_forks(lab, sku).await?;
                ArmResult { forked, ..ArmResult::of_item(&lab.audit(sku).await?, orders) }
            }
            ContendedValue::Account(user) => {
                let arm = audit_account(lab, *user).await?;
                ArmResult {
                    stock_opening: opening,
                    undersold: (opening.min(orders * PRICE_CENTS) - arm.sold).max(0),
                    forked: balance_forks(lab, *user).await?,
                    ..arm
                }
            }
        };

        Ok(ArmResult {
            strategy: spec.strategy.clone(),
            wait: spec.wait.clone(),
            replicas: (spec.replicas < lab.replica_count()).then_some(spec.replicas),
            ..measured
        })
    }
}

async fn audit_account(lab: &Scenario, user: UserId) -> anyhow::Result<ArmResult> {
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
    let drift = row.balance - row.total;
    Ok(ArmResult {
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

async fn stock_forks(lab: &Scenario, sku: &Sku) -> anyhow::Result<Vec<ForkedVersion>> {
    forks!(lab, "stock_ledger l where sku", sku.as_str())
}

async fn balance_forks(lab: &Scenario, user: UserId) -> anyhow::Result<Vec<ForkedVersion>> {
    forks!(lab, "balance_ledger l where user_id", user.0)
}

fn fork(version: i64, before: i64, entries: Value) -> anyhow::Result<ForkedVersion> {
    Ok(ForkedVersion { version, before, entries: serde_json::from_value(entries)? })
}
