//! What a student of a class may do, and what only the teacher may: tried on every route.

use std::collections::BTreeSet;

use holdfast_testkit::{TestShop, fresh_key};
use serde_json::json;
use uuid::Uuid;

use crate::join::{class_shop, join, joined};
use crate::lab::register_runner;
use crate::visitor::Visitor;

/// What only the teacher has: each address that begins so.
const TEACHERS: [&str; 15] = [
    "/admin",
    "/audit",
    "/jobs",
    "/locks",
    "/lab/class",
    "/lab/files",
    "/lab/lessons/{name}/show-answers",
    "/lab/runs",
    "/sign-up",
    "/api/admin",
    "/api/audit",
    "/api/jobs",
    "/api/locks",
    "/api/lab/",
    "/api/users",
];
/// Below those, what a student may read.
const READABLE: [&str; 8] = [
    "/api/lab/noop",
    "/lab/runs",
    "/lab/runs/{id}",
    "/lab/runs/{id}/file",
    "/lab/runs/{id}/picture",
    "/api/lab/runs",
    "/api/lab/runs/{id}",
    "/api/lab/runs/{id}/events",
];

/// Returns the addresses of all routes, as they are registered.
fn routes() -> BTreeSet<String> {
    let sources = [
        include_str!("../../src/web/api/mod.rs"),
        include_str!("../../src/web/pages/mod.rs"),
        include_str!("../../src/web/pages/class.rs"),
        include_str!("../../src/web/pages/admin/mod.rs"),
        include_str!("../../src/web/pages/lab/mod.rs"),
    ];
    let mut routes = BTreeSet::new();
    for source in sources {
        for (place, _) in source.match_indices("resource(").chain(source.match_indices("get_post("))
        {
            let rest = &source[place..];
            let quoted = rest.split('"').nth(1).unwrap_or_default();
            routes.insert(quoted.to_owned());
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn student_never_reaches_what_is_the_teachers() {
    let (shop, code) = class_shop().await;
    register_runner(&shop).await;
    let (mia, bo) = (joined(&shop, &code, "Mia").await, joined(&shop, &code, "Bo").await);
    let csrf = mia.get("/join").await.csrf();

    let routes = routes();
    assert!(routes.contains("/lab/class/end") && routes.contains("/api/lab/items"), "{routes:?}");
    for route in &routes {
        let is_of_items = route.starts_with("/api/items") || route.starts_with("/items/");
        let path = route
            .replace("{sku}", "deadbolt")
            .replace("{name:.*\\.woff2}", "none.woff2")
            .replace("{name}", "lost-update")
            .replace("{tag}", "en")
            .replace("{code}", &code)
            .replace("{id}", &Uuid::new_v4().to_string());

        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            // Those that would end the session, whose rights are examined.
            if ["/sign-out", "/api/sessions", "/api/me/password"].contains(&route.as_str()) {
                continue;
            }
            let is_read = method == "GET";
            let is_allowed = (is_read || route == "/api/lab/noop") && READABLE.contains(&route.as_str())
                || route.ends_with("/hand-in")
                // A form's address leads back to its page.
                || is_read && ["/lab/files", "/sign-up"].contains(&route.as_str());
            let is_teachers =
                TEACHERS.iter().any(|start| route.starts_with(start)) || is_of_items && !is_read;

            let request = mia.http.request(method.parse().unwrap(), format!("{}{path}", mia.base));
            let request = request
                .header("X-CSRF-Token", &csrf)
                .header("Idempotency-Key", fresh_key())
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body(format!("csrf={csrf}"));
            let status = request.send().await.unwrap().status().as_u16();
            assert!(status < 500, "{method} {path}: {status}");
            if is_teachers && !is_allowed {
                // 303: the address of a form leads back to its page, which is refused.
                let refused = [403, 405].contains(&status) || is_read && status == 303;
                assert!(refused, "{method} {path}: {status}");
            }
        }
    }
    // Lessons and races, but no load.
    let loads = "select count(*) from lab_runs where replica is null and not wanted ? 'lesson'";
    assert_eq!(shop.number(loads).await, 0);

    // Nor the pauses and faults of a request of one's own.
    for header in ["Holdfast-Lock", "Holdfast-Pause"] {
        let order = mia.http.post(format!("{}/api/orders", mia.base)).header(header, "none");
        let order = order.header("X-CSRF-Token", &csrf).header("Idempotency-Key", fresh_key());
        let order = order.json(&json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] }));
        assert_eq!(order.send().await.unwrap().status(), 403, "{header}");
    }

    let (order, _) = mia.buy("deadbolt", 1).await;
    assert_eq!(mia.get(&order).await.status, 200);
    assert_eq!(bo.get(&order).await.status, 404, "an order is its buyer's");
    assert_eq!(bo.get(&format!("/api{order}")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn shop_without_a_class_has_no_such_page() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    for path in ["/join", "/join/ABC234", "/lab/class", "/lab/class.csv"] {
        assert_eq!(admin.get(path).await.status, 404, "{path}");
    }
    assert_eq!(join(&Visitor::new(&shop), "ABC234", "Mia").await.status, 404);
    assert!(!admin.get("/shop").await.text.contains("/lab/class"));
}
