//! Paying many orders from one account together: what [`super::pay`] does, for a whole batch.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Paid, Pay};
use crate::lock::LockKey;
use crate::probe::Point;
use crate::shop::combine::{Combiner, Lines, Member, Work, pass};
use crate::shop::idempotency::{Claim, ClaimRow};
use crate::shop::orders::moves::no_longer;
use crate::shop::orders::{Change, Order, unpaid};
use crate::shop::stock::Exclusion;
use crate::shop::stock::batched::{self, Part, Payment};
use crate::shop::{Answer, Error, OrderId, Refusal};

impl Work for Pay {
    fn key(&self) -> LockKey {
        self.claim.user.lock_key()
    }

    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn lines(combiner: &Combiner) -> &Lines<Self> {
        &combiner.payments
    }

    async fn perform(
        tx: &mut PgConnection,
        exclusion: &Exclusion<'_>,
        members: &[(&Member<Self>, ClaimRow)],
    ) -> Result<Vec<Result<Answer, Refusal>>, Error> {
        let (members, rows): (Vec<&Member<Self>>, Vec<&ClaimRow>) =
            members.iter().map(|(member, row)| (*member, row)).unzip();
        let Some(user) = members.first().map(|member| member.work.claim.user) else {
            return Ok(Vec::new());
        };
        let standings = lock_orders(tx, &members).await?;
        let Some(purse) = batched::lock_purse(tx, exclusion, user).await? else {
            let nothing = || Refusal::NotFound("you have no account".to_owned());
            return Ok(members.iter().map(|_| Err(nothing())).collect());
        };
        let judged = judge(&standings, purse.balance_cents, &members);
        let before = |at: usize| judged[at].as_ref().ok().copied();
        pass(members.iter().copied(), Point::Read, exclusion, before).await;

        let told = members.iter().zip(&judged).map(|(member, judged)| match judged {
            Ok(before) => answer(member, *before, purse.now).map(Ok),
            Err(refusal) => Ok(Err(refusal.clone())),
        });
        let told: Vec<Result<Answer, Refusal>> = told.collect::<Result<_, Error>>()?;
        let payments: Vec<Payment<'_>> = (0..members.len())
            .filter_map(|at| {
                let (part, answer) = (part(members[at]), told[at].as_ref().ok()?);
                Some(Payment { part, answer, claim: rows[at] })
            })
            .collect();
        if !payments.is_empty() {
            batched::spend(tx, user, purse, &payments).await?;
        }
        let after = |at: usize| before(at).map(|cents| cents - members[at].work.found.total_cents);
        pass(members.iter().copied(), Point::Write, exclusion, after).await;
        Ok(told)
    }
}

fn part(member: &Member<Pay>) -> Part {
    let found = &member.work.found;
    let request_id = member.conditions.request_id;
    Part { order: found.id, request_id, delta: -found.total_cents }
}

fn answer(member: &Member<Pay>, before: i64, paid_at: OffsetDateTime) -> Result<Answer, Error> {
    let found = member.work.found.clone();
    let delta = -found.total_cents;
    let order = Order { status: "paid".to_owned(), paid_at: Some(paid_at), ..found };
    Answer::json(200, &Paid { order, balance: Change { before, delta, after: before + delta } })
}

/// How an order stands, while its row is locked.
struct Standing {
    status: String,
    expired: bool,
    /// It was given back because it was not paid in time.
    lapsed: bool,
}

/// Locks the orders' rows, sorted; orders come before accounts.
async fn lock_orders(
    tx: &mut PgConnection,
    members: &[&Member<Pay>],
) -> Result<HashMap<Uuid, Standing>, Error> {
    let ids: Vec<Uuid> = members.iter().map(|member| member.work.found.id.0).collect();
    let rows = sqlx::query!(
        r#"select id, status, expires_at <= clock_timestamp() as "expired!" from orders
            where id = any($1) order by id for no key update"#,
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    let cancelled = rows.iter().filter(|row| row.status == "cancelled").map(|row| row.id);
    let lapsed = unpaid::lapsed_among(tx, cancelled.collect()).await?;
    let standings = rows.into_iter().map(|row| {
        let lapsed = lapsed.contains(&row.id);
        (row.id, Standing { status: row.status, expired: row.expired, lapsed })
    });
    Ok(standings.collect())
}

/// Each payment in its turn: what is on the account before it, or why it can't be made.
fn judge(
    standings: &HashMap<Uuid, Standing>,
    balance_cents: i64,
    members: &[&Member<Pay>],
) -> Vec<Result<i64, Refusal>> {
    let mut left = balance_cents;
    let mut paid: HashSet<OrderId> = HashSet::new();
    let judged = members.iter().map(|member| {
        let order = &member.work.found;
        let Some(standing) = standings.get(&order.id.0) else {
            return Err(crate::shop::orders::no_such_order(order.id));
        };
        let status = if paid.contains(&order.id) { "paid" } else { standing.status.as_str() };
        if status != "pending" {
            return Err(no_longer(status.to_owned(), standing.lapsed, "pay"));
        }
        if standing.expired {
            return Err(Refusal::OrderExpired);
        }
        if order.total_cents > left {
            return Err(Refusal::InsufficientFunds {
                needed_cents: order.total_cents,
                balance_cents: left,
            });
        }
        let before = left;
        left -= order.total_cents;
        paid.insert(order.id);
        Ok(before)
    });
    judged.collect()
}
