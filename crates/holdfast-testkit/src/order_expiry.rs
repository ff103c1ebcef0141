//! Orders that expire, and the worker that lets them expire.

use serde_json::Value;

use crate::{TestShop, User, id_of, until};

impl TestShop {
    /// Places an order that expires after `hold_ms`.
    pub async fn place_expiring_order(
        &self,
        who: &User,
        replica: usize,
        sku: &str,
        hold_ms: u64,
    ) -> String {
        let order = who.at(replica).orders(sku, 1).header("Holdfast-Pay-Within-Ms", hold_ms);
        id_of(&order.ok().await)
    }

    pub async fn configure_worker(&self, replica: usize, settings: Value) {
        let admin = self.sign_in("admin").await;
        admin.at(replica).post("/api/lab/worker").json(&settings).succeeds(204).await;
    }

    pub async fn until_worker_paused(&self, replica: usize, point: &str) -> String {
        let admin = self.sign_in("admin").await;
        let mut held = None;
        until(&format!("a worker is paused at {point}"), async || {
            let holds = self.paused_requests(&admin, replica).await;
            held = holds.into_iter().find(|held| held.point == point);
            held.is_some()
        })
        .await;
        held.unwrap().request
    }

    pub async fn resume_paused(&self, replica: usize, request: &str) {
        let admin = self.sign_in("admin").await;
        assert!(self.resume_request(&admin, replica, request).await);
    }

    pub async fn until_no_order_is_pending(&self) {
        until("no order is pending", async || {
            self.number("select count(*) from orders where status = 'pending'").await == 0
        })
        .await;
    }

    pub async fn expiry_entries(&self) -> i64 {
        self.number("select count(*) from stock_ledger where reason = 'expiry'").await
    }
}
