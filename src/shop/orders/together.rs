//! Placing many orders for one item together: what [`super::place`] does, for a whole batch.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use sqlx::PgConnection;

use super::place::Place;
use super::{Change, Line, Order};
use crate::lock::LockKey;
use crate::probe::Point;
use crate::shop::combine::{self, Combiner, Lines, Looked, Member, Work, pass};
use crate::shop::idempotency::{self, Claim, ClaimRow, Stored};
use crate::shop::stock::Exclusion;
use crate::shop::stock::batched::{self, Sale, Shelf};
use crate::shop::{
    Answer, Conditions, Error, OrderId, Outcome, Refusal, Shop, Sku, UserId, customer_limit,
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
    Ok(match shop.combiner.gate.look(shop, sku, quantity, claim).await? {
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

    fn done(&self, shop: &Shop) {
        self.is_placed(shop);
    }

    async fn perform(
        tx: &mut PgConnection,
        exclusion: &Exclusion<'_>,
        members: &[(&Member<Self>, ClaimRow)],
    ) -> Result<Vec<Result<Answer, Refusal>>, Error> {
        let (members, rows): (Vec<&Member<Self>>, Vec<&ClaimRow>) =
            members.iter().map(|(member, row)| (*member, row)).unzip();
        let Some(sku) = members.first().and_then(|member| member.work.skus().pop()) else {
            return Ok(Vec::new());
        };
        let Some(shelf) = batched::lock_shelf(tx, exclusion, &sku).await? else {
            let no_such = || Refusal::NotFound(format!("there is no item {sku}"));
            let judged = members.iter().map(|_| Err(no_such())).collect();
            return unless_used(tx, &members, judged).await;
        };
        let held = match shelf.limit_per_user {
            Some(_) => customer_limit::held_by_each(tx, &sku, buyers(shelf, &members)).await?,
            None => HashMap::new(),
        };
        let judged = judge(&sku, shelf, held, &members);
        let judged = unless_used(tx, &members, judged).await?;
        let read = |at: usize| judged[at].as_ref().ok().map(|wanted| wanted.before);
        pass(members.iter().copied(), Point::Read, exclusion, read).await;

        let told = judged.iter().cloned().map(|judged| match judged {
            Ok(wanted) => wanted.answer(&sku, shelf).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        });
        let told: Vec<Result<Answer, Refusal>> = told.collect::<Result<_, Error>>()?;
        let sales: Vec<Sale<'_>> = (0..members.len())
            .filter_map(|at| {
                let (wanted, answer) = (judged[at].as_ref().ok()?, told[at].as_ref().ok()?);
                Some(wanted.sale(members[at], answer, rows[at], shelf))
            })
            .collect();
        if !sales.is_empty() {
            batched::sell(tx, &sku, shelf, &sales).await?;
        }
        let wrote = |at: usize| judged[at].as_ref().ok().map(Wanted::after);
        pass(members.iter().copied(), Point::Write, exclusion, wrote).await;
        Ok(told)
    }
}

/// An order of a batch for which there is enough.
#[derive(Clone, Copy)]
struct Wanted {
    order: OrderId,
    quantity: i64,
    total_cents: i64,
    before: i64,
    hold: Duration,
}

impl Wanted {
    fn sale<'a>(
        &self,
        member: &'a Member<Place>,
        answer: &'a Answer,
        claim: &'a ClaimRow,
        shelf: Shelf,
    ) -> Sale<'a> {
        Sale {
            order: self.order,
            user: member.work.claim.user,
            token: member.work.claim.key.as_str(),
            request_id: member.conditions.request_id,
            quantity: self.quantity,
            total_cents: self.total_cents,
            expires_at: shelf.now + self.hold,
            answer,
            claim,
        }
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
            expires_at: shelf.now + self.hold,
            created_at: shelf.now,
            paid_at: None,
            expired: false,
        };
        Answer::json(201, &order)
    }
}

/// Whoever may get something: nobody counts what those have who find too little on the shelf.
fn buyers(shelf: Shelf, members: &[&Member<Place>]) -> BTreeSet<UserId> {
    let places = members.iter().map(|member| &member.work);
    places.filter(|it| it.quantity() <= shelf.stock).map(|it| it.claim.user).collect()
}

/// A key that is forgotten is claimed like a new one. The order it has placed is found when it is
/// placed again; who is not to have any is told of it instead of the refusal. One statement for all
/// of them, and none where nobody is refused.
async fn unless_used<T>(
    tx: &mut PgConnection,
    members: &[&Member<Place>],
    mut judged: Vec<Result<T, Refusal>>,
) -> Result<Vec<Result<T, Refusal>>, Error> {
    let refused = || judged.iter().zip(members).filter(|(judged, _)| judged.is_err());
    let claims: Vec<&Claim> = refused().map(|(_, member)| &member.work.claim).collect();
    let orders = idempotency::orders_of_tokens(tx, &claims).await?;
    for (judged, order) in judged.iter_mut().filter(|judged| judged.is_err()).zip(orders) {
        if order.is_some() {
            *judged = Err(Refusal::KeyUsed { order_id: order });
        }
    }
    Ok(judged)
}

/// Each order in its turn: what was on the shelf before it, or why it can't have its units. Of
/// several orders of one customer the later ones find the earlier ones among what is `held`.
fn judge(
    sku: &Sku,
    shelf: Shelf,
    mut held: HashMap<UserId, i64>,
    members: &[&Member<Place>],
) -> Vec<Result<Wanted, Refusal>> {
    let mut left = shelf.stock;
    let judged = members.iter().map(|member| {
        let place = &member.work;
        let quantity = place.quantity();
        let Some(total_cents) = shelf.price_cents.checked_mul(quantity) else {
            return Err(Refusal::Invalid("lines".into(), "it costs too much".to_owned()));
        };
        if quantity > left {
            return Err(sold_out(sku, quantity, left));
        }
        if let Some(limit) = shelf.limit_per_user {
            let already = held.entry(place.claim.user).or_default();
            if *already + quantity > limit {
                return Err(customer_limit::reached(sku, limit, *already, quantity));
            }
            *already += quantity;
        }
        let before = left;
        left -= quantity;
        let hold = member.conditions.hold;
        Ok(Wanted { order: place.order, quantity, total_cents, before, hold })
    });
    judged.collect()
}
