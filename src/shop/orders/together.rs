//! Placing many orders for one item together: what [`super::place`] does, for a whole batch.

use sqlx::PgConnection;
use uuid::Uuid;

use super::place::Place;
use super::{Change, Line, Order};
use crate::lock::LockKey;
use crate::probe::Point;
use crate::shop::combine::{self, Combiner, Lines, Looked, Member, Work, pass};
use crate::shop::idempotency::{Claim, Stored};
use crate::shop::stock::Exclusion;
use crate::shop::stock::batched::{self, Part, Shelf};
use crate::shop::{
    Answer, Conditions, Error, ORDER_HOLD, OrderId, Outcome, Refusal, Shop, Sku, UserId,
    errand::Errand as _,
};

/// Places an order for one item, with whoever else wants it now.
///
/// # Errors
/// [`Error`]; see [`combine::run`].
pub(super) async fn place(
    shop: &Shop,
    conditions: &Conditions,
    sku: Sku,
    place: Place,
) -> Result<Outcome, Error> {
    if let Err(refusal) = place.admit(shop, conditions).await? {
        return Ok(Outcome::Refused(refusal));
    }
    let quantity = place.quantity();
    let gate = &shop.combiner.gate;
    if gate.may_be_short(&sku, quantity)
        && let Some(outcome) = refused_at_the_gate(shop, &sku, quantity, &place.claim).await?
    {
        return Ok(outcome);
    }
    let outcome = combine::run(shop, conditions, place).await?;
    if let Outcome::Refused(Refusal::SoldOut { available, .. }) = &outcome {
        gate.note(&sku, *available);
    }
    Ok(outcome)
}

async fn refused_at_the_gate(
    shop: &Shop,
    sku: &Sku,
    quantity: i64,
    claim: &Claim,
) -> Result<Option<Outcome>, Error> {
    Ok(match shop.combiner.gate.look(shop, sku, claim).await? {
        Looked::Settled(Stored::Finished(answer)) => Some(Outcome::Replayed(answer)),
        Looked::Settled(Stored::Refused(refusal)) => Some(Outcome::Refused(refusal)),
        Looked::Shelf(Some(available)) if available < quantity => {
            Some(Outcome::Refused(sold_out(sku, quantity, available)))
        }
        Looked::Shelf(_) => None,
    })
}

fn sold_out(sku: &Sku, requested: i64, available: i64) -> Refusal {
    Refusal::SoldOut { sku: sku.clone(), requested, available }
}

impl Place {
    fn quantity(&self) -> i64 {
        self.lines.values().copied().next().unwrap_or(0)
    }
}

impl Work for Place {
    fn key(&self) -> LockKey {
        // A batch has one item, and a token has been checked to have a line.
        self.keys().swap_remove(0)
    }

    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn lines(combiner: &Combiner) -> &Lines<Self> {
        &combiner.orders
    }

    async fn perform(
        tx: &mut PgConnection,
        exclusion: &Exclusion<'_>,
        members: &[&Member<Self>],
    ) -> Result<Vec<Result<Answer, Refusal>>, Error> {
        let Some(sku) = members.first().and_then(|member| member.work.skus().pop()) else {
            return Ok(Vec::new());
        };
        let Some(shelf) = batched::lock_shelf(tx, exclusion, &sku).await? else {
            let no_such = || Refusal::NotFound(format!("there is no item {sku}"));
            return Ok(members.iter().map(|_| Err(no_such())).collect());
        };
        let judged = judge(&sku, shelf, members);
        let read = |at: usize| judged[at].as_ref().ok().map(|wanted| wanted.before);
        pass(members.iter().copied(), Point::Read, read).await;

        let wanted: Vec<&Wanted> =
            judged.iter().filter_map(|judged| judged.as_ref().ok()).collect();
        if !wanted.is_empty() {
            insert(tx, &sku, shelf, &wanted).await?;
            let parts: Vec<Part> = wanted.iter().map(|wanted| wanted.part()).collect();
            batched::write_shelf(tx, &sku, shelf, "order", &parts).await?;
        }
        let wrote = |at: usize| judged[at].as_ref().ok().map(|wanted| wanted.after());
        pass(members.iter().copied(), Point::Write, wrote).await;
        let told = judged.into_iter().map(|judged| match judged {
            Ok(wanted) => wanted.answer(&sku, shelf).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        });
        told.collect()
    }
}

/// An order of a batch for which there is enough.
struct Wanted {
    order: OrderId,
    user: UserId,
    token: String,
    request_id: Uuid,
    quantity: i64,
    total_cents: i64,
    before: i64,
}

impl Wanted {
    fn part(&self) -> Part {
        Part { order: self.order, request_id: self.request_id, delta: -self.quantity }
    }

    fn after(&self) -> i64 {
        self.before - self.quantity
    }

    fn answer(self, sku: &Sku, shelf: Shelf) -> Result<Answer, Error> {
        let line = Line {
            sku: sku.clone(),
            quantity: self.quantity,
            unit_price_cents: shelf.price_cents,
            stock: Change { before: self.before, delta: -self.quantity, after: self.after() },
        };
        let order = Order {
            id: self.order,
            status: "pending".to_owned(),
            total_cents: self.total_cents,
            lines: vec![line],
            expires_at: shelf.now + ORDER_HOLD,
            created_at: shelf.now,
            paid_at: None,
        };
        Answer::json(201, &order)
    }
}

/// Each order in its turn: what was on the shelf before it, or why it can't have its units.
fn judge(sku: &Sku, shelf: Shelf, members: &[&Member<Place>]) -> Vec<Result<Wanted, Refusal>> {
    let mut left = shelf.stock;
    let judged = members.iter().map(|member| {
        let place = &member.work;
        let quantity = place.quantity();
        let Some(total_cents) = shelf.price_cents.checked_mul(quantity) else {
            return Err(Refusal::Invalid("lines", "it costs too much".to_owned()));
        };
        if quantity > left {
            return Err(sold_out(sku, quantity, left));
        }
        let before = left;
        left -= quantity;
        Ok(Wanted {
            order: place.order,
            user: place.claim.user,
            token: place.claim.key.as_str().to_owned(),
            request_id: member.conditions.request_id,
            quantity,
            total_cents,
            before,
        })
    });
    judged.collect()
}

/// The orders and their lines, each table with one insert.
async fn insert(
    tx: &mut PgConnection,
    sku: &Sku,
    shelf: Shelf,
    wanted: &[&Wanted],
) -> Result<(), Error> {
    let ids: Vec<Uuid> = wanted.iter().map(|wanted| wanted.order.0).collect();
    let users: Vec<Uuid> = wanted.iter().map(|wanted| wanted.user.0).collect();
    let totals: Vec<i64> = wanted.iter().map(|wanted| wanted.total_cents).collect();
    let tokens: Vec<String> = wanted.iter().map(|wanted| wanted.token.clone()).collect();
    let quantities: Vec<i64> = wanted.iter().map(|wanted| wanted.quantity).collect();
    sqlx::query!(
        "with placed as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select id, user_id, 'pending', total_cents, token, $6, $7
               from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[])
                    as new (id, user_id, total_cents, token))
         insert into order_lines (order_id, sku, quantity, unit_price_cents)
         select id, $8, quantity, $9 from unnest($1::uuid[], $5::bigint[]) as new (id, quantity)",
        &ids,
        &users,
        &totals,
        &tokens,
        &quantities,
        shelf.now,
        shelf.now + ORDER_HOLD,
        sku.as_str(),
        shelf.price_cents,
    )
    .execute(tx)
    .await
    .map_err(used_long_ago)?;
    Ok(())
}

/// A token that was used so long ago that its answer is forgotten: it is looked for, and only then,
/// when the batch is tried again.
fn used_long_ago(error: sqlx::Error) -> Error {
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    match constraint {
        Some("orders_token_key") => Error::Conflict("a token was used long ago".to_owned()),
        _ => error.into(),
    }
}
