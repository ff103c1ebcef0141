//! The contended value of an arm, an item's stock or an account's balance: its current state, and
//! its audit after the load.

use super::arm::Spec;
use super::run::{Arm, Forked, ForkedEntry};
use super::stage::Stage;
use crate::shop::{Sku, UserId};

pub(super) const PRICE_CENTS: i64 = 100;
const FORKS_SHOWN: i64 = 12;

#[derive(Debug, Clone)]
pub(super) enum Target {
    Item(Sku),
    Account(UserId),
}

/// The remaining stock or balance, and the amount sold according to the ledger.
pub(super) struct Now {
    pub(super) stock: i64,
    pub(super) sold: i64,
}

impl Target {
    pub(super) async fn now(&self, stage: &Stage) -> anyhow::Result<Now> {
        let mut connection = stage.house.pool.acquire().await.map_err(|(_, error)| error)?;
        Ok(match self {
            Target::Item(sku) => {
                let row = sqlx::query!(
                    r#"select stock, (select coalesce(-sum(delta), 0)::bigint from stock_ledger l
                                       where l.sku = i.sku and order_id is not null) as "sold!"
                         from items i where sku = $1"#,
                    sku.as_str(),
                )
                .fetch_one(&mut *connection)
                .await?;
                Now { stock: row.stock, sold: row.sold }
            }
            Target::Account(user) => {
                let row = sqlx::query!(
                    r#"select balance_cents,
                              (select coalesce(-sum(delta), 0)::bigint from balance_ledger l
                                where l.user_id = a.user_id and reason = 'payment') as "paid!"
                         from accounts a where user_id = $1"#,
                    user.0,
                )
                .fetch_one(&mut *connection)
                .await?;
                Now { stock: row.balance_cents, sold: row.paid }
            }
        })
    }

    pub(super) async fn audit(
        &self,
        stage: &Stage,
        spec: &Spec,
        opening: i64,
    ) -> anyhow::Result<Arm> {
        let mut arm = Arm {
            strategy: spec.strategy.clone(),
            wait: spec.wait.clone(),
            replicas: (spec.replicas < stage.replicas()).then_some(spec.replicas),
            stock_opening: opening,
            ..Arm::default()
        };
        let wanted = i64::try_from(spec.orders)?;
        match self {
            Target::Item(sku) => {
                let audit = stage.audit(sku).await?;
                arm.sku = Some(sku.to_string());
                (arm.sold, arm.stock, arm.oversold) = (audit.sold, audit.stock, audit.oversold);
                (arm.drift, arm.breaks, arm.ok) = (audit.drift, audit.breaks, audit.ok);
                arm.forks = i64::try_from(audit.forks.len())?;
                arm.undersold = (opening.min(wanted) - audit.sold).max(0);
                arm.forked = forked_stock(stage, sku).await?;
            }
            Target::Account(user) => {
                self.audit_account(stage, *user, &mut arm).await?;
                arm.undersold = (opening.min(wanted * PRICE_CENTS) - arm.sold).max(0);
                arm.forked = forked_balance(stage, *user).await?;
            }
        }
        Ok(arm)
    }

    async fn audit_account(
        &self,
        stage: &Stage,
        user: UserId,
        arm: &mut Arm,
    ) -> anyhow::Result<()> {
        let mut connection = stage.house.pool.acquire().await.map_err(|(_, error)| error)?;
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
        .fetch_one(&mut *connection)
        .await?;
        (arm.sold, arm.stock, arm.oversold) = (row.paid, row.balance, row.overspent);
        (arm.drift, arm.breaks, arm.forks) = (row.balance - row.total, row.breaks, row.forks);
        arm.ok = arm.drift == 0 && arm.breaks == 0;
        Ok(())
    }
}

/// Splits a row of either ledger into its version, its `before` and the entry.
macro_rules! entry {
    ($row:expr) => {{
        let row = $row;
        let (seq, delta, after) = (row.seq, row.delta, row.after);
        let (order_id, request_id, fence) = (row.order_id, row.request_id, row.fence);
        let entry = ForkedEntry { seq, delta, after, order_id, request_id, fence };
        (row.version, row.before, entry)
    }};
}

async fn forked_stock(stage: &Stage, sku: &Sku) -> anyhow::Result<Vec<Forked>> {
    let mut connection = stage.house.pool.acquire().await.map_err(|(_, error)| error)?;
    let rows = sqlx::query!(
        "select seq, before, delta, after, version, order_id, request_id, fence
           from stock_ledger
          where sku = $1 and version in
                (select version from stock_ledger where sku = $1
                  group by version having count(*) > 1 order by version limit $2)
          order by version, seq",
        sku.as_str(),
        FORKS_SHOWN,
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok(gathered(rows.into_iter().map(|row| entry!(row))))
}

async fn forked_balance(stage: &Stage, user: UserId) -> anyhow::Result<Vec<Forked>> {
    let mut connection = stage.house.pool.acquire().await.map_err(|(_, error)| error)?;
    let rows = sqlx::query!(
        "select seq, before, delta, after, version, order_id, request_id, fence
           from balance_ledger
          where user_id = $1 and version in
                (select version from balance_ledger where user_id = $1
                  group by version having count(*) > 1 order by version limit $2)
          order by version, seq",
        user.0,
        FORKS_SHOWN,
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok(gathered(rows.into_iter().map(|row| entry!(row))))
}

/// Groups entries, sorted by version, into forks.
fn gathered(entries: impl Iterator<Item = (i64, i64, ForkedEntry)>) -> Vec<Forked> {
    let mut forks: Vec<Forked> = Vec::new();
    for (version, before, entry) in entries {
        match forks.last_mut() {
            Some(fork) if fork.version == version => fork.entries.push(entry),
            _ => forks.push(Forked { version, before, entries: vec![entry] }),
        }
    }
    forks
}
