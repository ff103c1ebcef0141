//! A user with money of its own, for a single run.

use anyhow::Context as _;
use uuid::Uuid;

use super::cluster::begin_session;
use super::request::LessonRequest;
use super::scenario::Scenario;
use crate::messages::Text;
use crate::shop::store::accounts::open_lab_account;
use crate::shop::users::LAB_NAME_PREFIX;
use crate::shop::{Sku, UserId};

#[derive(Debug)]
pub struct Payer {
    pub account: UserId,
    pub token: String,
}

impl Payer {
    pub async fn create(lab: &Scenario, cents: i64) -> anyhow::Result<Self> {
        let name = format!("{LAB_NAME_PREFIX}{}", Uuid::now_v7().simple());
        let (id, token) = begin_session(&lab.cluster.pool, &name, false).await?;
        open_lab_account(&lab.cluster.pool, id, cents).await?;
        Ok(Self { account: id.lab_account(), token })
    }

    /// Places orders for one unit each, without recording them.
    pub async fn orders(
        &self,
        lab: &Scenario,
        sku: &Sku,
        count: usize,
    ) -> anyhow::Result<Vec<Uuid>> {
        let mut orders = Vec::with_capacity(count);
        for _ in 0..count {
            let order = lab.order("an order", 0, sku, "row-lock").by(&self.token);
            let order = order.send().unrecorded_response().await?;
            orders.push(order.order().context("the order failed")?);
        }
        Ok(orders)
    }

    pub fn pay<'a>(
        &'a self,
        lab: &'a Scenario,
        label: impl Into<Text>,
        replica: usize,
        order: Uuid,
        strategy: &str,
    ) -> LessonRequest<'a> {
        let path = format!("/api/orders/{order}/pay");
        lab.post(label, replica, &path, "", strategy).by(&self.token)
    }
}
