//! Places an order for the basket.
//!
//! Guarantees: a form that is sent twice (double click, back button, reload), to one replica or to
//! two, makes one order, and every copy redirects to it. The basket's token is the idempotency key,
//! in the same scope as the API's. In addition, a lock on the user admits one order at a time; a
//! copy that finds the lock taken waits for the first copy's order, for a bounded time, instead of
//! being rejected.
//!
//! The guarantee rests on the token; the lock is a convenience. Under a strategy that does not need
//! Redis, orders are placed without this lock while Redis is unavailable.
//! Tests: `tests/pages/duplicate_submits.rs`.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Form;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, LockKind, Wait};
use tokio::time::{Instant, sleep};

use super::basket;
use super::basket_cookie::Basket;
use super::duplicate_submit::{DUPLICATE_TIMEOUT, POLL_INTERVAL};
use super::rejection::RejectionNotice;
use super::respond::set_cookie;
use crate::locks::Mechanism;
use crate::shop::model::{Order, RequestedLine};
use crate::shop::query::orders;
use crate::shop::{
    Execution, Failure, IdempotencyKey, OrderId, Rejection, RequestOptions, Shop, UserId, engine,
};
use crate::web::middleware::{BASKET_COOKIE, FormFields, csrf};
use crate::web::{HttpResult, Problem, State, see_other};

pub async fn place(
    state: State,
    request: HttpRequest,
    options: RequestOptions,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_form(&request, form.csrf()).await?.caller.id;
    let key = form.key("token")?;
    let mut basket = Basket::of(&request);
    let of_this_basket = basket.key().as_ref() == Some(&key) && !basket.lines().is_empty();
    let result = if of_this_basket {
        place_once(&state.shop, &options, user, &key, &basket.order_lines()).await?
    } else {
        // An old page: its basket was ordered, or has changed since.
        match orders::order_placed_with(&state.shop, user, &key).await? {
            Some(order) => PlaceResult::Ordered(order),
            None => {
                let notice = RejectionNotice::BasketChanged { is_empty: basket.lines().is_empty() };
                PlaceResult::Rejected { status: StatusCode::CONFLICT, notice, keeps_token: false }
            }
        }
    };
    match result {
        PlaceResult::Ordered(order) => {
            let mut response = see_other(&format!("/orders/{order}"));
            if of_this_basket {
                set_cookie(&mut response, &BASKET_COOKIE.removal(&request))?;
            }
            Ok(response)
        }
        PlaceResult::Rejected { status, notice, keeps_token } => {
            if !keeps_token {
                basket.renew_token();
            }
            let mut page = basket::page(&request, status, &basket, Some(notice), None).await?;
            if !basket.lines().is_empty() {
                set_cookie(&mut page, &basket.cookie(&request))?;
            }
            Ok(page)
        }
    }
}

enum PlaceResult {
    Ordered(OrderId),
    Rejected {
        status: StatusCode,
        notice: RejectionNotice,
        /// True while another copy of the form may be in flight: a new token could make a second
        /// order.
        keeps_token: bool,
    },
}

async fn place_once(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    key: &IdempotencyKey,
    lines: &[RequestedLine],
) -> Result<PlaceResult, Problem> {
    let until = Instant::now() + DUPLICATE_TIMEOUT;
    loop {
        let rejection = match place_under_lock(shop, options, user, key, lines).await {
            Ok(executed) => return Ok(PlaceResult::Ordered(executed.response.read::<Order>()?.id)),
            Err(Failure::Rejected(rejection)) => rejection,
            Err(Failure::Error(error)) => return Err(error.into()),
        };
        // Another copy is in flight or was executed; its order may exist by now.
        let another_copy = matches!(
            rejection,
            Rejection::KeyInFlight | Rejection::LockBusy(_) | Rejection::KeyUsed { .. }
        );
        if another_copy && let Some(order) = orders::order_placed_with(shop, user, key).await? {
            return Ok(PlaceResult::Ordered(order));
        }
        if !another_copy || Instant::now() >= until {
            let problem = Problem::from(rejection);
            let (status, notice) = (problem.code(), RejectionNotice::from(&problem));
            return Ok(PlaceResult::Rejected { status, notice, keeps_token: another_copy });
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Places the order, under the lock on the user.
async fn place_under_lock(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
    key: &IdempotencyKey,
    lines: &[RequestedLine],
) -> Result<Execution, Failure> {
    let guards = acquire_user_lock(shop, options, user).await?;
    let result = engine::place_order(shop, options, user, key.clone(), lines).await;
    guards.release().await;
    result
}

async fn acquire_user_lock(
    shop: &Shop,
    options: &RequestOptions,
    user: UserId,
) -> Result<Guards, Failure> {
    let request = AcquireRequest {
        kind: LockKind::Owner,
        wait: Wait::Try,
        ttl: None,
        deadline: options.deadline,
        keys: &[user.buyer_lock_key()],
    };
    match shop.locks.leases().acquire(request).await {
        Ok(AcquireOutcome::Acquired(guards)) => Ok(guards),
        Ok(AcquireOutcome::Busy(holder) | AcquireOutcome::TimedOut { holder, .. }) => {
            Err(Rejection::LockBusy(holder).into())
        }
        Err(error) if options.strategy.lock.is_some_and(Mechanism::needs_redis) => {
            Err(error.into())
        }
        Err(error) => {
            tracing::debug!(%error, "placing an order without the lock on the user");
            Ok(Guards::default())
        }
    }
}
