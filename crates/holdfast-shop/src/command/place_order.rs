//! Places an order: takes its units from stock, and keeps them until it is paid or expires.
//!
//! Rejects, in this order: an unknown or hidden item; a total that overflows; insufficient stock; a
//! total above the one that the customer expects; more units than the item's limit per customer
//! allows. A lower total than expected is passed on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use holdfast_lock::LockKey;
use uuid::Uuid;

use super::changes::{Changes, CommandResponse, NewOrder};
use super::state::ShopState;
use super::{Command, ConditionalUpdate, MAX_AMOUNT, ReadSet, SingleOrder, range};
use crate::failure::Rejection;
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::model::{Order, OrderLine, OrderStatus, RequestedLine, ValueChange};
use crate::{IdempotencyKey, OrderId, Sku, UserId};
use holdfast_base::messages::message;

pub const MAX_LINES: usize = 50;
pub const MAX_QUANTITY: i64 = 1_000;
/// The total of the largest order of the most expensive items.
pub const MAX_TOTAL: i64 = MAX_AMOUNT * MAX_QUANTITY * MAX_LINES as i64;

#[derive(Debug, Clone)]
pub struct PlaceOrder {
    idempotency: IdempotencyRequest,
    order: OrderId,
    lines: BTreeMap<Sku, i64>,
    /// The most that the customer agreed to pay, if they said so.
    expected_total_cents: Option<i64>,
    payment_window: Duration,
}

impl PlaceOrder {
    pub fn new(
        user: UserId,
        key: IdempotencyKey,
        requested: &[RequestedLine],
        expected_total_cents: Option<i64>,
        payment_window: Duration,
    ) -> Result<Self, Rejection> {
        if requested.is_empty() || requested.len() > MAX_LINES {
            let why = message!("problem-line-count", most = MAX_LINES);
            return Err(Rejection::invalid("lines", why));
        }

        let mut lines = BTreeMap::new();
        for (place, line) in requested.iter().enumerate() {
            if !(1..=MAX_QUANTITY).contains(&line.quantity) {
                let field = format!("lines[{place}].quantity");
                return Err(Rejection::invalid(field, range(1, MAX_QUANTITY)));
            }
            *lines.entry(line.sku.clone()).or_insert(0) += line.quantity;
        }

        if expected_total_cents.is_some_and(|cents| !(0..=MAX_TOTAL).contains(&cents)) {
            return Err(Rejection::invalid("expected_total_cents", range(0, MAX_TOTAL)));
        }

        // Sorted and added up: the same order in other lines is the same request. So is one that
        // expects another total: a client that retries may have read a new price since.
        let mut content = String::new();
        for (sku, quantity) in &lines {
            let _ = writeln!(content, "{sku} {quantity}");
        }
        let mut idempotency =
            IdempotencyRequest::new(user, Operation::PlaceOrder, Some(key), &content);
        let order = OrderId(Uuid::now_v7());
        idempotency.new_order = Some(order);
        Ok(Self { idempotency, order, lines, expected_total_cents, payment_window })
    }

    /// Returns the command with the id that another replica has given its order.
    pub(crate) fn with_order(mut self, order: OrderId) -> Self {
        self.idempotency.new_order = Some(order);
        Self { order, ..self }
    }

    pub fn single_line(&self) -> Option<(&Sku, i64)> {
        let (sku, quantity) = self.lines.first_key_value()?;
        (self.lines.len() == 1).then_some((sku, *quantity))
    }

    /// Returns the number of units of all lines.
    pub fn units(&self) -> i64 {
        self.lines.values().sum()
    }

    fn user(&self) -> UserId {
        self.idempotency.user
    }

    /// Returns the order to place. Checks stock, the total and limits.
    fn pending(&self, state: &ShopState) -> Result<Order, Rejection> {
        let mut total_cents = 0_i64;
        let mut lines = Vec::with_capacity(self.lines.len());
        for (sku, &quantity) in &self.lines {
            let item = state.item(sku)?;
            if item.hidden {
                return Err(Rejection::NotFound(message!("problem-item-hidden", sku)));
            }
            let line_cents = item.price_cents.checked_mul(quantity);
            let sum = line_cents.and_then(|cents| total_cents.checked_add(cents));
            let too_much = || Rejection::invalid("lines", message!("problem-costs-too-much"));
            total_cents = sum.ok_or_else(too_much)?;
            let before = item.stock;
            lines.push(OrderLine {
                sku: sku.clone(),
                quantity,
                unit_price_cents: item.price_cents,
                names: item.names.clone(),
                stock: ValueChange { before, delta: -quantity, after: before - quantity },
            });
        }

        // Stock first: it is the same for every customer, and needs no count. A row that is updated
        // already was checked by its update, or (`check-then-decrement`) on an earlier read.
        for OrderLine { sku, quantity, stock, .. } in &lines {
            if stock.after < 0 && !state.items[sku].is_updated {
                return Err(Rejection::SoldOut {
                    sku: sku.clone(),
                    requested: *quantity,
                    available: stock.before,
                });
            }
        }
        // On the prices that the order records. Before the limits, which may need a count.
        if let Some(expected_total_cents) = self.expected_total_cents
            && total_cents > expected_total_cents
        {
            return Err(Rejection::PriceChanged { expected_total_cents, total_cents });
        }
        for OrderLine { sku, quantity, .. } in &lines {
            let Some(limit) = state.items[sku].limit_per_user else { continue };
            if let Some(&already) = state.purchased.get(&(sku.clone(), self.user()))
                && already + quantity > limit
            {
                let sku = sku.clone();
                return Err(Rejection::LimitReached { sku, limit, already, requested: *quantity });
            }
        }

        Ok(Order {
            id: self.order,
            status: OrderStatus::Pending,
            total_cents,
            lines,
            expires_at: state.now + self.payment_window,
            created_at: state.now,
            paid_at: None,
            expired: false,
        })
    }
}

impl Command for PlaceOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let items = self.lines.keys().cloned().collect();
        ReadSet { items, buyer: Some(self.user()), ..ReadSet::default() }
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.order)
    }

    fn single_order(&self) -> Option<SingleOrder<'_>> {
        let (sku, quantity) = self.single_line()?;
        let expected_total_cents = self.expected_total_cents;
        let payment_window = self.payment_window;
        Some(SingleOrder { sku, quantity, expected_total_cents, payment_window })
    }

    fn batch_key(&self) -> Option<LockKey> {
        self.single_line().map(|(sku, _)| sku.lock_key())
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let stock = self.lines.iter().map(|(sku, quantity)| (sku.clone(), -quantity)).collect();
        Some(ConditionalUpdate { stock, ..ConditionalUpdate::default() })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let order = self.pending(state)?;
        let limits = self.lines.keys().map(|sku| state.items[sku].limit_per_user).collect();

        let mut stock = Vec::with_capacity(self.lines.len());
        for (sku, quantity) in &self.lines {
            stock.push(state.change_stock(sku, -quantity, "order", Some(self.order))?);
            // The next order of this customer in the batch must count these units too.
            if let Some(purchased) = state.purchased.get_mut(&(sku.clone(), self.user())) {
                *purchased += quantity;
            }
        }
        let order = Some(NewOrder { user: self.user(), order, limits });
        Ok(Changes { order, stock, ..Changes::none(CommandResponse::Placed) })
    }
}
