//! The jobs page: access, a parked run, and the button that retries it, also without scripts on a
//! phone.

use holdfast::jobs::history;
use holdfast::jobs::store::RunState;
use serde_json::json;
use time::macros::datetime;

use crate::browser::Browser;
use crate::common::{Shop, until};
use crate::visitor::Visitor;

/// A run of `purge` that has failed five times, and is not retried automatically.
async fn parked() -> Shop {
    let shop = Shop::without_replicas().await;
    let previous = json!([{ "attempt": 4, "replica": "till-4", "fence": 257,
        "started_at": "2026-11-21T10:00:00Z", "ended_at": "2026-11-21T10:00:01Z",
        "error": "it took longer than 300s, and was cancelled" }]);
    sqlx::query(
        "insert into job_runs (job, due_at, state, attempt, attempts_allowed, replica, fence,
                               started_at, ended_at, next_at, error,
                               previous_attempts)
         values ('purge', '2026-11-21 09:23', 'parked', 5, 5, 'till-5', 321,
                 '2026-11-21 10:00:02', '2026-11-21 10:00:14.5', null,
                 'it panicked: <b>on purpose</b>', $1)",
    )
    .bind(previous)
    .execute(&shop.pool)
    .await
    .unwrap();
    shop
}

async fn is_done(shop: &Shop) -> bool {
    let due_at = datetime!(2026-11-21 09:23 UTC);
    let run = history::find(&shop.pool.clone().into(), "purge", due_at).await.unwrap().unwrap();
    run.state == RunState::Done && run.attempt == 6
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admin_retries_a_parked_run() {
    let mut shop = parked().await;
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    let stranger = Visitor::new(&shop).get("/jobs").await;
    assert_eq!(
        (stranger.status.as_u16(), stranger.location.as_str()),
        (303, "/sign-in?next=/jobs")
    );
    let alice = Visitor::signed_in(&shop, "alice").await;
    assert_eq!(alice.get("/jobs").await.status, 403);
    let admin = Visitor::signed_in(&shop, "admin").await;
    let page = admin.get("/jobs").await;
    let words = page.words();
    assert!(words.contains("purge is parked It failed 5 times. Last errorit panicked:"));
    assert!(page.text.contains("on purpose") && !page.text.contains("<b>on purpose"), "escaped");
    assert!(words.contains("attempt 5 · Replica till-5 · 2026-11-21 10:00:02 UTC · 12.5 s"));
    assert!(
        words.contains("4: till-4, Fencing token 257, 2026-11-21 10:00:00 UTC: it took longer")
    );
    assert!(words.contains("(23 * * * *, UTC)"), "{words}");

    let path = page.text.split("action=\"/jobs/").nth(1).unwrap().split('"').next().unwrap();
    let path = format!("/jobs/{path}");
    for (visitor, form) in [
        (&alice, format!("csrf={}", alice.get("/basket").await.csrf())),
        (&admin, "csrf=no".to_owned()),
    ] {
        assert_eq!(visitor.post(&path, &form).await.status, 403);
    }
    assert!(!is_done(&shop).await);
    let form = format!("csrf={}", page.csrf());
    // A second click is no second run.
    for _ in 0..2 {
        let response = admin.post(&path, &form).await;
        assert_eq!((response.status.as_u16(), response.location.as_str()), (303, "/jobs"));
    }
    until("it is done", async || is_done(&shop).await).await;
    let words = admin.get("/jobs").await.words();
    assert!(!words.contains("purge is parked"), "{words}");
    assert!(words.contains("attempt 6") && words.contains("Resultnothing to do"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_audit_is_shown_on_jobs_page() {
    let mut shop = Shop::without_replicas().await;
    let sql = "update items set stock = stock + 3 where sku = 'deadbolt'";
    sqlx::query(sql).execute(&shop.pool).await.unwrap();
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    let admin = Visitor::signed_in(&shop, "admin").await;
    until("the page says so", async || {
        let page = admin.get("/jobs").await;
        page.words().contains("not sound: 1 of 25 checks fail: stock-drift")
            && page.text.contains("class=\"off\"")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_button_works_without_scripts_on_phone() {
    let mut shop = parked().await;
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    let browser = Browser::open(&shop.replicas[0].base_url, false).await;
    let phone = json!({ "width": 320, "height": 640, "deviceScaleFactor": 1, "mobile": false });
    browser.devtools("Emulation.setDeviceMetricsOverride", phone).await;
    browser.go("/sign-in").await;
    browser.sign_in("admin").await;
    browser.click("nav a[href='/jobs']").await;
    browser.until_text("#parked", "is parked").await;
    let main = browser.find("main").await.rect().await.unwrap();
    let table = browser.find("#job-runs table").await.rect().await.unwrap();
    assert!(main.width <= 320.0 && table.x + table.width <= 320.0, "{main:?} {table:?}");
    browser.click("#parked button").await;
    browser.until_path("/jobs").await;
    until("it is done", async || is_done(&shop).await).await;
    browser.go("/jobs").await;
    browser.until_text("[aria-labelledby=job-purge]", "nothing to do").await;
    assert!(browser.find("#parked").await.text().await.unwrap().is_empty());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admin_retries_a_parked_expiry() {
    let shop = Shop::start_with(1, &[("HOLDFAST_JOBS", "on")]).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (token, csrf) = alice.fill_basket("deadbolt", 1).await;
    alice.order(&token, &csrf).await;
    let park = "insert into unpaid_failures (order_id, attempts, cause, failed_at)
                select id, 10, 'the shelf is <b>full</b>', now() from orders";
    sqlx::query(park).execute(&shop.pool).await.unwrap();
    let over = "update orders set expires_at = created_at";
    sqlx::query(over).execute(&shop.pool).await.unwrap();
    let admin = Visitor::signed_in(&shop, "admin").await;
    let page = admin.get("/jobs").await;
    let words = page.words();
    assert!(words.contains("is parked It failed 10 times."), "{words}");
    assert!(words.contains("Due now1"), "{words}");
    assert!(page.text.contains("full") && !page.text.contains("<b>full"), "escaped");
    let path = page.text.split("action=\"/jobs/unpaid/").nth(1).unwrap();
    let path = format!("/jobs/unpaid/{}", path.split('"').next().unwrap());
    let status = async || {
        let status = "select count(*) from orders where status = 'pending'";
        shop.number(status).await
    };
    for (visitor, form) in [(&alice, format!("csrf={csrf}")), (&admin, "csrf=no".to_owned())] {
        assert_eq!(visitor.post(&path, &form).await.status, 403);
        assert_eq!(status().await, 1);
    }
    for _ in 0..2 {
        let retried = admin.post(&path, &format!("csrf={}", page.csrf())).await;
        assert_eq!((retried.status.as_u16(), retried.location.as_str()), (303, "/jobs"));
        until("it is given back", async || status().await == 0).await;
    }
    let words = admin.get("/jobs").await.words();
    assert!(words.contains("Due now0") && !words.contains("It failed"), "{words}");
    shop.assert_sound().await;
}
