//! Cancels orders that were not paid in time, and returns their units to stock, once.
//!
//! Skips orders that are not pending or not due, and those that another transaction has locked
//! (e.g. a payment at that moment).

use std::collections::BTreeSet;

use uuid::Uuid;

use super::changes::{Changes, CommandResponse};
use super::state::{OrderSnapshot, ShopState};
use super::{Command, ReadSet};
use crate::failure::Rejection;
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::locks::Priority;
use crate::model::OrderStatus;
use crate::{OrderId, Sku, UserId};

#[derive(Debug, Clone)]
pub struct ExpireOrders {
    idempotency: IdempotencyRequest,
    orders: Vec<(OrderId, Vec<(Sku, i64)>)>,
}

impl ExpireOrders {
    /// Creates a command that expires the due orders among `orders`, each once. The items and
    /// quantities of an order must be sorted by sku.
    pub fn new(mut orders: Vec<(OrderId, Vec<(Sku, i64)>)>) -> Self {
        orders.sort();
        orders.dedup_by_key(|(order, _)| *order);
        let nobody = UserId(Uuid::nil());
        let idempotency = IdempotencyRequest::new(nobody, Operation::ExpireOrders, None, "");
        Self { idempotency, orders }
    }
}

impl Command for ExpireOrders {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let units = self.orders.iter().flat_map(|(_, units)| units);
        let items: BTreeSet<&Sku> = units.map(|(sku, _)| sku).collect();
        ReadSet {
            items: items.into_iter().cloned().collect(),
            orders: self.orders.iter().map(|(order, _)| *order).collect(),
            skip_locked_orders: true,
            ..ReadSet::default()
        }
    }

    /// High, because it returns units for which others wait.
    fn priority(&self) -> Priority {
        Priority::High
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let mut due = Vec::new();
        for (order, units) in &self.orders {
            // Absent: a payment has locked it at this moment, and decides.
            let Some(found) = state.orders.get(order) else { continue };
            if found.status == OrderStatus::Pending && found.expires_at <= state.now {
                due.push((*order, units, *found));
            }
        }
        // Before any change, because a rejected command leaves the state as it was.
        for (sku, _) in due.iter().flat_map(|(_, units, _)| *units) {
            state.item(sku)?;
        }

        let mut stock = Vec::new();
        let mut transitions = Vec::new();
        let mut expired = BTreeSet::new();
        for (order, units, found) in due {
            stock.extend(state.return_units(units, "expiry", order)?);
            let after = OrderSnapshot { status: OrderStatus::Cancelled, expired: true, ..found };
            transitions.push(state.change_order(order, OrderStatus::Pending, after));
            expired.insert(order);
        }
        let response = CommandResponse::Expired(expired);
        Ok(Changes { transitions, stock, ..Changes::none(response) })
    }
}
