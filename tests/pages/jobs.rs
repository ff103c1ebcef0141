//! The jobs page: access, a failed run, an unsound audit, and the button that retries an expiry.

use holdfast_testkit::{TestShop, until};
use serde_json::json;

use crate::browser::Browser;
use crate::visitor::Visitor;

async fn with_failed_run() -> TestShop {
    let shop = TestShop::start(1).await;
    shop.execute(
        "insert into job_runs (job, due_at, state, attempt, replica, started_at, ended_at, next_at,
                               error)
         values ('purge', '2026-11-21 09:23', 'failed', 5, 'till-5', '2026-11-21 10:00:02',
                 '2026-11-21 10:00:14.5', '2026-11-21 10:01:14', 'broken: <b>on purpose</b>')",
    )
    .await;
    shop
}

/// Each refresh of the open page brings the times in UTC again, which must not flicker.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_those_of_the_browsers_zone() {
    let shop = with_failed_run().await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser
        .devtools("Emulation.setTimezoneOverride", json!({ "timezoneId": "Asia/Kolkata" }))
        .await;
    browser.go("/sign-in").await;
    browser.sign_in("admin").await;
    browser.until_path("/shop").await;
    browser.go("/jobs").await;
    let started = browser.find("#job-purge time[datetime='2026-11-21T10:00:02Z']").await;
    assert_eq!(started.text().await.unwrap(), "2026-11-21 15:30:02 +05:30");
    let title = started.attr("title").await.unwrap();
    assert_eq!(title.as_deref(), Some("2026-11-21 10:00:02 UTC"));

    let observe = "window.changes = 0;
        new MutationObserver((list) => window.changes += list.length).observe(
            document.querySelector('#jobs'), { childList: true, subtree: true, characterData: true });";
    browser.driver.execute(observe, vec![]).await.unwrap();
    until("two refreshes", async || {
        let count = "return performance.getEntriesByType('resource')
            .filter((entry) => entry.name.endsWith('/jobs')).length";
        browser.driver.execute(count, vec![]).await.unwrap().json().as_i64() >= Some(2)
    })
    .await;
    let changes = browser.driver.execute("return window.changes", vec![]).await.unwrap();
    assert_eq!(changes.json(), 0);

    browser.go("/account/security").await;
    let title = browser.find("#sessions time").await.attr("title").await.unwrap().unwrap();
    assert!(title.contains(" +05:30 · ") && title.ends_with(" UTC"), "{title}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_locks_and_jobs_are_under_the_hood() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let items = admin.get("/admin").await.text;
    assert!(items.contains("<a href=\"/audit\">Under the hood</a>"), "{items}");
    for (path, title) in [("/audit", "Audit"), ("/locks", "Locks"), ("/jobs", "Jobs")] {
        assert!(!items.contains(&format!(">{title}</a>")), "{path}");
        let page = admin.get(path).await.text;
        for link in [
            "<a href=\"/audit\" aria-current=\"true\">Under the hood</a>".to_owned(),
            format!("<a href=\"{path}\" aria-current=\"page\">{title}</a>"),
        ] {
            assert!(page.contains(&link), "{path}: {link}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admin_sees_a_failed_run() {
    let shop = with_failed_run().await;
    let anonymous = Visitor::new(&shop).get("/jobs").await;
    assert_eq!(
        (anonymous.status.as_u16(), anonymous.location.as_str()),
        (303, "/sign-in?next=/jobs")
    );
    let alice = Visitor::signed_in(&shop, "alice").await;
    assert_eq!(alice.get("/jobs").await.status, 403);
    let page = Visitor::signed_in(&shop, "admin").await.get("/jobs").await;
    let words = page.words();
    assert!(words.contains("failed · attempt 5 · Replica till-5 · 2026-11-21 10:00:02 UTC"));
    assert!(words.contains("Next attempt 2026-11-21 10:01:14 UTC"), "{words}");
    assert!(words.contains("every 60 minutes"), "{words}");
    assert!(page.text.contains("on purpose") && !page.text.contains("<b>on purpose"), "escaped");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_audit_is_shown_on_jobs_page() {
    let mut shop = TestShop::without_replicas().await;
    let sql = "update items set stock = stock + 3 where sku = 'deadbolt'";
    sqlx::query(sql).execute(&shop.pool).await.unwrap();
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    let admin = Visitor::signed_in(&shop, "admin").await;
    until("the page reports it", async || {
        let page = admin.get("/jobs").await;
        page.words().contains("not sound: 1 of 28 checks fail: stock-drift")
            && page.text.contains("class=\"off\"")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admin_retries_a_parked_expiry() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_JOBS", "on")]).await;
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
        until("the order has expired", async || status().await == 0).await;
    }
    let words = admin.get("/jobs").await.words();
    assert!(words.contains("Due now0") && !words.contains("It failed"), "{words}");
    shop.assert_sound().await;
}
