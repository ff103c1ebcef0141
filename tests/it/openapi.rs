//! The OpenAPI description has every route, and the reference shows all of it.

use std::collections::BTreeSet;

use holdfast_testkit::TestShop;

#[tokio::test]
async fn openapi_describes_every_route() {
    let shop = TestShop::start(1).await;
    let description = shop.anonymous().reads("/api/openapi.json").await;
    let mut described = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let contract = [
        "POST /api/users",
        "POST /api/sessions",
        "GET /api/sessions",
        "DELETE /api/sessions",
        "DELETE /api/sessions/{id}",
        "GET /api/items",
        "POST /api/items",
        "GET /api/items/{sku}",
        "PATCH /api/items/{sku}",
        "POST /api/items/{sku}/stock",
        "PUT /api/items/{sku}/limit",
        "GET /api/items/{sku}/ledger",
        "GET /api/items/{sku}/audit",
        "POST /api/order-tokens",
        "POST /api/orders",
        "GET /api/orders",
        "GET /api/orders/{id}",
        "POST /api/orders/{id}/pay",
        "POST /api/orders/{id}/cancel",
        "POST /api/orders/{id}/refund",
        "GET /api/me",
        "GET /api/me/ledger",
        "POST /api/me/top-ups",
        "POST /api/me/password",
        "GET /api/admin/items",
        "GET /api/admin/log",
        "GET /api/locks",
        "GET /api/audit",
        "GET /api/jobs",
        "POST /api/jobs/expiry/{id}/retry",
        "POST /api/lab/ticks",
        "POST /api/lab/items",
        "POST /api/lab/items/{sku}/reconcile",
        "POST /api/lab/noop",
        "POST /api/lab/runs",
        "GET /api/lab/runs",
        "GET /api/lab/runs/{id}",
        "GET /api/lab/runs/{id}/events",
        "GET /api/lab/paused",
        "POST /api/lab/paused/{id}",
        "POST /api/lab/worker",
        "GET /api/lab/queues",
        "POST /api/race",
        "POST /api/race/paused/{id}",
        "GET /api/race/paused",
        "GET /api/race/{id}",
        "GET /api/admin/orders",
        "GET /api/admin/orders/{id}",
        "GET /api/admin/users",
        "GET /api/admin/users/{name}",
        "PATCH /api/admin/users/{name}",
        "POST /api/admin/users/{name}/end-sessions",
        "POST /api/admin/users/{name}/password",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
    ];
    assert_eq!(described, contract.map(str::to_owned).into());
}

#[tokio::test]
async fn reference_shows_every_operation() {
    let shop = TestShop::start(1).await;
    let document = shop.anonymous().reads("/api/openapi.json").await;
    let redirected = shop.http.get(shop.url(0, "/api/docs/")).send().await.unwrap();
    assert_eq!((redirected.status().as_u16(), redirected.url().path()), (200, "/api/docs"));
    let page = redirected.text().await.unwrap();

    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let heading = format!("<code><b>{}</b> {path}</code>", method.to_uppercase());
            assert!(page.contains(&heading), "{heading}");
            let id = operation["operationId"].as_str().unwrap();
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("id=\"schema-{name}\"")), "{name}");
    }
    // Every link to a schema has its target.
    for link in page.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}
