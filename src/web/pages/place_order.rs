//! Places an order for the basket, and executes other forms once.
//!
//! Guarantees: a form that is sent twice (double click, back button, reload), to one replica or to
//! two, makes one order, and every copy redirects to it. The basket's token is the idempotency key;
//! the buyer's lock only admits one order of a user at a time. A copy waits for the first one's
//! response. Tests: `tests/pages/duplicate_submits.rs`.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::Form;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, Holder, LockKind, Wait};
use tokio::time::{Instant, sleep};

use super::basket::{self, BasketRejection, RejectionReason};
use super::kept_basket::Basket;
use super::rejection::FormErrors;
use super::shown_prices::ShownPrices;
use crate::web::middleware::{DefaultContext, FormFields, csrf};
use crate::web::{HttpResult, Problem, State, see_other};
use holdfast_base::messages::Language;
use holdfast_shop::model::{Order, RequestedLine};
use holdfast_shop::query::orders;
use holdfast_shop::{
    Execution, Failure, IdempotencyKey, Rejection, RequestContext, Shop, UserId, baskets, engine,
};

/// Longest wait of a second copy; shorter than a request's timeout, so it ends as a rejection.
const DUPLICATE_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(60);

/// Repeats the request until no other copy is in flight; the key ensures one execution.
pub(super) async fn execute_once(
    mut execute: impl AsyncFnMut() -> Result<Execution, Failure>,
) -> Result<Execution, Failure> {
    let until = Instant::now() + DUPLICATE_TIMEOUT;
    loop {
        let result = execute().await;
        let in_flight = matches!(result, Err(Failure::Rejected(Rejection::KeyInFlight)));
        if !in_flight || Instant::now() >= until {
            return result;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Submits a form's command, once per key. The errors are empty if it was executed, now or by an
/// earlier copy of the form.
pub(super) async fn submit(
    language: Language,
    execute: impl AsyncFnMut() -> Result<Execution, Failure>,
) -> Result<FormErrors, Problem> {
    match execute_once(execute).await {
        Ok(_) | Err(Failure::Rejected(Rejection::KeyUsed { .. })) => Ok(FormErrors::default()),
        Err(Failure::Rejected(Rejection::NotFound(what))) => Err(Problem::missing(what)),
        Err(Failure::Rejected(rejection)) => Ok(FormErrors::of_rejection(rejection, language)),
        Err(Failure::Error(error)) => Err(error.into()),
    }
}

pub(crate) async fn place(
    state: State,
    request: HttpRequest,
    context: DefaultContext,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?.caller.id;
    let key = form.key("token")?;
    let shown = ShownPrices::of(&form)?;
    let mut basket = Basket::load(&request).await?;

    // An old page has another one: its basket was ordered, or has changed since.
    if basket.key().as_ref() != Some(&key) || basket.lines().is_empty() {
        if let Some(order) = orders::order_placed_with(&state.shop, user, &key).await? {
            return Ok(see_other(&format!("/orders/{order}")));
        }
        basket.renew_token();
        return rejected(&request, &basket, RejectionReason::Changed, shown).await;
    }

    let lines = basket.order_lines();
    let until = Instant::now() + DUPLICATE_TIMEOUT;
    let order = loop {
        let placing =
            place_under_lock(&state.shop, &context, user, &key, &lines, shown.total_cents);
        let rejection = match placing.await {
            Ok(executed) => break executed.response.read::<Order>()?.id,
            Err(Failure::Rejected(rejection)) => rejection,
            Err(Failure::Error(error)) => return Err(error.into()),
        };
        let another_copy = matches!(
            rejection,
            Rejection::KeyInFlight | Rejection::LockBusy(_) | Rejection::KeyUsed { .. }
        );
        if another_copy
            && let Some(order) = orders::order_placed_with(&state.shop, user, &key).await?
        {
            break order;
        }
        if !another_copy || Instant::now() >= until {
            // While another copy may be in flight, a new token could make a second order.
            if !another_copy {
                basket.renew_token();
            }
            let reason = RejectionReason::Problem(rejection.into());
            return rejected(&request, &basket, reason, shown).await;
        }
        sleep(POLL_INTERVAL).await;
    };

    // The order is placed. If its basket stays, the same token leads to the same order.
    if let Err(error) = baskets::clear(&state.shop, user, key.as_str()).await {
        tracing::warn!(%error, "the basket of an order was not cleared");
    }
    Ok(see_other(&format!("/orders/{order}")))
}

/// Under a strategy without a lock in Redis, goes without the buyer's lock while Redis is
/// unavailable.
async fn place_under_lock(
    shop: &Shop,
    context: &RequestContext,
    user: UserId,
    key: &IdempotencyKey,
    lines: &[RequestedLine],
    expected_total_cents: Option<i64>,
) -> Result<Execution, Failure> {
    let keys = [user.buyer_lock_key()];
    let request = AcquireRequest::new(LockKind::Owner, &keys)
        .with_wait(Wait::Try)
        .with_deadline(context.deadline);
    let guards = match shop.locks.leases().acquire(request).await {
        Ok(AcquireOutcome::Acquired(guards)) => guards,
        Ok(AcquireOutcome::Busy(holder) | AcquireOutcome::TimedOut { holder, .. }) => {
            return Err(Rejection::LockBusy(holder).into());
        }
        Ok(_) => return Err(Rejection::LockBusy(Holder::default()).into()),
        Err(error) if context.strategy.lock_in_redis().is_some() => return Err(error.into()),
        Err(_) => Guards::default(),
    };

    let result =
        engine::place_order(shop, context, user, key.clone(), lines, expected_total_cents).await;
    guards.release().await;
    result
}

async fn rejected(
    request: &HttpRequest,
    basket: &Basket,
    reason: RejectionReason,
    shown: ShownPrices,
) -> HttpResult {
    let rejection = BasketRejection { reason, shown };
    let mut page = basket::page(request, basket, Some(rejection), None).await?;
    if !basket.lines().is_empty() {
        // If the basket has changed since, the form of this page is answered like any old one.
        basket.keep(request, &mut page).await?;
    }
    Ok(page)
}
