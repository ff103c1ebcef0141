//! The id of a request: the replica's own, or in the lab the client's.

use holdfast_testkit::TestShop;
use uuid::Uuid;

#[tokio::test]
async fn ledger_never_has_id_of_client() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LAB", "off")]).await;
    let alice = shop.sign_in("alice").await;
    let id = Uuid::new_v4().to_string();
    for given in [id.as_str(), id.as_str(), "trace-7/a"] {
        let response = alice.orders("deadbolt", 1).header("X-Request-Id", given).await;
        assert_eq!(response.header("x-client-request-id"), given);
        assert_ne!(response.header("x-request-id"), given);
        response.succeeds(201);
    }
    let ids = "select count(distinct request_id) from stock_ledger where order_id is not null";
    assert_eq!(shop.number(ids).await, 3);
    let long = "x".repeat(200);
    let response = shop.anonymous().get("/healthz").header("X-Request-Id", long).await;
    assert_eq!(response.header("x-client-request-id"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_id_resumes_no_paused_request() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let (first_item, second_item) = (shop.lab_item(5).await, shop.lab_item(5).await);
    let first = shop.pause(&admin, alice.orders(&first_item, 1), "commit").await;
    alice.orders(&second_item, 1).header("X-Request-Id", &first.id).pause("commit").ok().await;
    shop.until_paused(&admin, 0, &first.id, "commit").await;
    shop.resume(&admin, first).await.ok();
}
