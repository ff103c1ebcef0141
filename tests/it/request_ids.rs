//! The id of a request: the replica's own, or in the lab the client's.

use uuid::Uuid;

use crate::common::Shop;
use crate::common::requests::{Answer as _, send};
use crate::pause_points::with_pause;

#[tokio::test]
async fn ledger_never_has_id_of_client() {
    let shop = Shop::start_with(1, &[("HOLDFAST_LAB", "off")]).await;
    let alice = shop.sign_in("alice").await;
    let id = Uuid::new_v4().to_string();
    for given in [id.as_str(), id.as_str(), "trace-7/a"] {
        let order = shop.order(&alice, 0, "deadbolt", 1).header("X-Request-Id", given);
        let response = order.send().await.unwrap();
        assert_eq!(response.headers()["x-client-request-id"], given);
        assert_ne!(response.headers()["x-request-id"], given);
        response.gives(201).await;
    }
    let ids = "select count(distinct request_id) from stock_ledger where order_id is not null";
    assert_eq!(shop.number(ids).await, 3);
    let long = "x".repeat(200);
    let response = shop.http.get(shop.url(0, "/healthz")).header("X-Request-Id", long);
    assert!(!response.send().await.unwrap().headers().contains_key("x-client-request-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_id_resumes_no_paused_request() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let (first_item, second_item) = (shop.lab_item(5).await, shop.lab_item(5).await);
    let (id, order) = with_pause(shop.order(&alice, 0, &first_item, 1), "commit");
    let first = send(order);
    shop.until_paused(&admin, 0, id, "commit").await;
    shop.order(&alice, 0, &second_item, 1)
        .header("X-Request-Id", id.to_string())
        .header("Holdfast-Pause", "commit")
        .gives(201)
        .await;
    shop.until_paused(&admin, 0, id, "commit").await;
    assert!(shop.resume_request(&admin, 0, &id.to_string()).await);
    first.gives(201).await;
}
