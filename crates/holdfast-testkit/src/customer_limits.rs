//! Items with a limit per customer.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{TestShop, User};

impl TestShop {
    /// An item of the lab or of the shop with a limit per customer.
    pub async fn limited_item(&self, lab: bool, stock: i64, limit: i64) -> String {
        let admin = self.sign_in("admin").await;
        let mut item = json!({ "stock": stock, "limit_per_user": limit });
        let create = if lab {
            admin.creates_lab_item(&item)
        } else {
            item["sku"] = format!("item-{}", Uuid::new_v4().simple()).into();
            item["name"] = "Item".into();
            item["price_cents"] = 100.into();
            admin.creates_item(&item)
        };
        let created = create.ok().await;
        assert_eq!(created["limit_per_user"], limit);
        created["sku"].as_str().unwrap().to_owned()
    }

    pub async fn set_limit(&self, sku: &str, limit: impl Into<Value>) -> Value {
        self.sign_in("admin").await.sets_limit(sku, limit).ok().await
    }

    /// Units of an item in a customer's pending and paid orders.
    pub async fn has(&self, who: &User, sku: &str) -> i64 {
        sqlx::query_scalar(
            "select coalesce(sum(l.quantity), 0)::bigint from order_lines l
               join orders o on o.id = l.order_id join users u on u.id = o.user_id
              where l.sku = $1 and u.name = $2 and o.status in ('pending', 'paid')",
        )
        .bind(sku)
        .bind(&who.name)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    pub async fn customers(&self) -> [User; 3] {
        [self.promoted("alice").await, self.promoted("bob").await, self.promoted("carol").await]
    }
}
