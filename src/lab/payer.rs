//! A user with money of its own, for a single run.

use anyhow::{Context as _, ensure};
use uuid::Uuid;

use super::headers::{LabHeaders, under};
use super::request::InFlightRequest;
use super::scenario::{Scenario, order_of};
use crate::shop::{Sku, UserId};

#[derive(Debug)]
pub struct Payer {
    pub id: UserId,
    pub token: String,
}

impl Payer {
    pub async fn create(lab: &Scenario, cents: i64) -> anyhow::Result<Self> {
        let (id, token) = lab.cluster.create_payer().await?;
        let body = format!("{{\"amount_cents\":{cents}}}");
        let headers = under("row-lock");
        let top_up = lab.post_as(&token, "top up", 0, "/api/me/top-ups", &body, &headers);
        let top_up = top_up.response().await?;
        ensure!(top_up.is_success(), "no money: {}", top_up.body);
        Ok(Self { id, token })
    }

    /// Places orders for one unit each, without recording them.
    pub async fn orders(
        &self,
        lab: &Scenario,
        sku: &Sku,
        count: usize,
    ) -> anyhow::Result<Vec<Uuid>> {
        let (headers, body) = (under("row-lock"), order_of(sku));
        let mut orders = Vec::with_capacity(count);
        for _ in 0..count {
            let order = lab.post_as(&self.token, "an order", 0, "/api/orders", &body, &headers);
            let order = order.response().await?;
            orders.push(order.order().with_context(|| format!("no order: {}", order.body))?);
        }
        Ok(orders)
    }

    pub fn pay(
        &self,
        lab: &Scenario,
        label: &str,
        replica: usize,
        order: Uuid,
        headers: &LabHeaders,
    ) -> InFlightRequest {
        let path = format!("/api/orders/{order}/pay");
        lab.post_as(&self.token, label, replica, &path, "", headers)
    }
}
