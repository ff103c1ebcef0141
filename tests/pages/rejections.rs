//! Forbidden and invalid requests: pages for browsers, problems for programs.

use std::time::{Duration, Instant};

use holdfast_testkit::proxy::{self, Traffic};
use holdfast_testkit::{BUSY_MACHINE, TestShop, until};

use crate::visitor::{Page, Visitor};

#[tokio::test(flavor = "multi_thread")]
async fn browsers_get_pages_and_programs_get_problems() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    for (path, status) in [
        ("/nothing-here", 404),
        ("/items/nothing", 404),
        ("/problems/nothing", 404),
        ("/shop?after=Not%20a%20sku", 200),
        ("/items/deadbolt/ledger?before=x", 200),
        ("/items/deadbolt/ledger?before=1&before=2", 422),
    ] {
        let page = visitor.get(path).await;
        assert_eq!(page.status.as_u16(), status, "{path}");
        assert_eq!(page.kind, "text/html; charset=utf-8", "{path}");
        assert!(page.text.contains("<h1>"), "{path}");
        let plain = visitor.http.get(format!("{}{path}", visitor.base)).send().await.unwrap();
        let plain = Page::read(plain).await;
        assert_eq!(plain.status.as_u16(), status, "{path}");
        if status != 200 {
            assert_eq!(plain.kind, "application/problem+json", "{path}");
        }
    }
    let problems = visitor.get("/problems").await;
    let words = problems.words();
    assert!(words.contains("invalid-request · 422, 400, 405, 415, 431 "), "{words}");
    for name in ["invalid-request", "sold-out", "internal-error"] {
        let moved = visitor.get(&format!("/problems/{name}")).await;
        assert_eq!((moved.status.as_u16(), moved.location), (303, format!("/problems#{name}")));
        assert!(problems.text.contains(&format!("<h2 id=\"{name}\">")), "{name}");
    }
    // A page says what does not exist, in its language.
    for (path, english, chinese) in [
        ("/nothing-here", "There is nothing at /nothing-here.", "没有 /nothing-here 这个页面。"),
        ("/items/007", "There is no item 007.", "没有商品 007。"),
        ("/language/xx", "There is nothing at /language/xx.", "没有 /language/xx 这个页面。"),
    ] {
        let words = visitor.get(path).await.words();
        assert!(words.contains(&format!("{english} Check the address")), "{words}");
        let words = visitor.get_in("zh", path).await.words();
        assert!(words.contains(chinese) && !words.contains("There is no"), "{words}");
    }
    let put = || visitor.http.put(format!("{}/basket", visitor.base)).header("Accept", "text/html");
    let page = Page::read(put().send().await.unwrap()).await;
    assert_eq!((page.status.as_u16(), page.kind.as_str()), (405, "text/html; charset=utf-8"));
    let page = Page::read(put().header("Accept-Language", "zh").send().await.unwrap()).await;
    assert!(page.words().contains("/basket 不接受 PUT，接受的是 GET, POST。"), "{}", page.words());
    for path in ["/api/nothing", "/api/items/nothing"] {
        assert_eq!(visitor.get(path).await.kind, "application/problem+json", "{path}");
    }
    let headers = visitor.page_request("/nothing-here").send().await.unwrap().headers().clone();
    for name in ["content-security-policy", "holdfast-replica", "x-request-id"] {
        assert_eq!(headers.get_all(name).iter().count(), 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_form_names_the_limit_and_keeps_its_text() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let form = format!("description={}", "x".repeat(70_000));
    for (language, limit, way) in
        [("en", "at most 64 KiB", "browser’s button"), ("zh", "最多 64 KiB", "浏览器的后退按钮")]
    {
        let request = admin.form_request("/admin/items/deadbolt/edit", &form);
        let request = request.header("Accept-Language", language);
        let refused = Page::read(request.send().await.unwrap()).await;
        let words = refused.words();
        assert!(refused.status == 413 && words.contains(limit) && words.contains(way), "{words}");
        // A link to the form would load it without the text.
        assert!(!refused.text.contains("href=\"/admin/items/deadbolt\""), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_pages_lead_back() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let base = visitor.base.clone();
    let from = |path: &str| format!("{base}{path}");
    for (path, referrer, back) in [
        ("/nothing-here", from("/items/deadbolt?a=1"), "/items/deadbolt?a=1"),
        ("/lab/lessons/nothing", from("/lab?present"), "/lab?present"),
        ("/lab/lessons/nothing", String::new(), "/lab"),
        // A page that was loaded again, and pages of other sites.
        ("/lab/lessons/nothing", from("/lab/lessons/nothing"), "/lab"),
        ("/lab/lessons/nothing", "http://evil.example/lab/runs".to_owned(), "/lab"),
        ("/lab/lessons/nothing", format!("{base}.evil.example/lab/runs"), "/lab"),
        ("/lab/lessons/nothing", from("//evil.example"), "/lab"),
    ] {
        let request = visitor.page_request(path).header("Referer", &referrer);
        let page = Page::read(request.send().await.unwrap()).await;
        let link = format!("href=\"{back}\">Back to where you were</a>");
        assert!(page.text.contains(&link), "{path} {referrer}: {}", page.text);
    }
    for (referrer, back) in [(String::new(), "/lab"), (from("/lab/scheduler"), "/lab/scheduler")] {
        let form = visitor.form_request("/lab/scheduler", "strategy=nothing");
        let page = Page::read(form.header("Referer", &referrer).send().await.unwrap()).await;
        let link = format!("href=\"{back}\">Back to where you were</a>");
        assert!(page.status == 422 && page.text.contains(&link), "{referrer}: {}", page.text);
    }
    let words = visitor.get("/nothing-here").await.words();
    assert!(!words.contains("Back to where you were"), "the shop is linked: {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_returns_to_requested_page() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    for (path, return_path) in
        [("/orders", "/orders"), ("/account?before=9", "/account%3Fbefore%3D9")]
    {
        let page = visitor.get(path).await;
        let forged = visitor.page_request(path).header("Cookie", "holdfast_session=forged");
        let forged = Page::read(forged.send().await.unwrap()).await;
        let sign_in = format!("/sign-in?next={return_path}");
        assert_eq!((page.status.as_u16(), &page.location), (303, &sign_in));
        // An ended session is unknown, too: the page reports it.
        assert_eq!(
            (forged.status.as_u16(), forged.location),
            (303, format!("{sign_in}&ended=yes"))
        );
    }
    for (path, return_path) in [("/orders", "/basket"), ("/account/top-ups", "/account")] {
        let page = visitor.post(path, "token=0123456789abcdef&key=0123456789abcdef&amount=1").await;
        assert_eq!(page.location, format!("/sign-in?next={return_path}"));
    }
    for (next, location) in [
        ("/account", "/account"),
        ("//evil.example", "/shop"),
        ("https://evil.example", "/shop"),
        ("/%5Cevil.example", "/shop"),
    ] {
        let form = format!("user=alice&password=alice&next={next}");
        assert_eq!(visitor.post("/sign-in", &form).await.location, location, "{next}");
    }
    let wrong = visitor.post("/sign-in", "user=alice&password=bob&next=/account").await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.words().contains("The name or the password is wrong."));
    assert_eq!(wrong.field("next"), "/account");

    // A form is carried on, and can't be shown: the session has begun all the same.
    for (action, status) in
        [("/nowhere", 404), ("/admin/items/nothing/edit", 404), ("/admin/items", 500)]
    {
        let admin = Visitor::new(&shop);
        let form = format!("user=admin&password=admin&kept-form={action}");
        // The look-up of the new session fails: it does not look like another user's.
        if status == 500 {
            shop.execute("alter table users rename nickname to lost").await;
        }
        let failed = admin.post("/sign-in", &form).await;
        if status == 500 {
            shop.execute("alter table users rename lost to nickname").await;
        }
        let is_admin = admin.get("/admin").await.status == 200;
        assert_eq!((failed.status.as_u16(), is_admin), (status, true), "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_up_says_what_is_wrong_with_a_name() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    for name in ["n@o", "no%20body", "Lab-1"] {
        let page = visitor.post("/sign-up", &format!("user={name}&password=12345678")).await;
        let wrong = page.text.split("id=\"user-wrong\"").nth(1).unwrap();
        assert!(wrong.contains("1 to 64 characters: a–z"), "{name}: {wrong}");
    }

    let taken = visitor.post("/sign-up", "user=alice&password=12345678").await;
    assert_eq!(taken.status, 409);
    assert!(taken.text.contains("user-wrong"));
    let chinese = visitor.form_request("/sign-up", "user=alice&password=12345678");
    let chinese = Page::read(chinese.header("Accept-Language", "zh").send().await.unwrap()).await;
    assert!(chinese.words().contains("请换一个。") && !chinese.words().contains("。."));

    let created = visitor.post("/sign-up", "user=dora&password=12345678&next=/account").await;
    assert_eq!((created.status.as_u16(), created.location.as_str()), (303, "/account"));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bar_shows_strategy_and_failing_audit() {
    let mut shop = TestShop::start(1).await;
    shop.forget_lock_family().await;
    shop.add_replica(&[("HOLDFAST_LOCK", "none")]);
    let sound = Visitor::signed_in(&shop, "admin").await;
    let broken = Visitor { http: sound.http.clone(), base: shop.replicas[1].base_url.clone() };
    assert!(sound.get("/").await.words().contains("Lock of the shop: batched"));
    let page = broken.get("/basket").await;
    assert!(page.words().contains("This shop will oversell: lock none"));
    assert!(page.words().contains(&format!("by server {}", shop.replicas[1].name())));

    // Deviations of two items in opposite directions must not cancel out.
    shop.execute(
        "update items set stock = stock + case sku when 'deadbolt' then 3 else -3 end
          where sku in ('deadbolt', 'key-ring')",
    )
    .await;
    let words = sound.get("/").await.words();
    assert!(words.contains("✗ The books are off by 6 units"), "{words}");
    assert!(sound.get("/items/deadbolt/ledger").await.words().contains("The books do not balance"));
    let audit = sound.get("/audit").await.words();
    let rule = "broken stock-drift the stock of each item equals the sum of its ledger";
    assert!(audit.contains(&format!("{rule} deadbolt: on the shelf 43")), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_ledger_chain_is_marked() {
    let shop = TestShop::start(1).await;
    shop.execute(
        "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
         values ('deadbolt', 40, 2, 42, 1, 'found', gen_random_uuid()),
                ('deadbolt', 40, 5, 45, 1, 'found', gen_random_uuid())",
    )
    .await;
    let words = Visitor::new(&shop).get("/items/deadbolt/ledger").await.words();
    assert!(words.contains("the entry below ended at 42, this one begins at 40"), "{words}");
    assert_eq!(words.matches("Fork: it read version 1, as did").count(), 2, "{words}");
    let admin = Visitor::signed_in(&shop, "admin").await;
    let words = admin.get("/audit").await.words();
    assert!(words.contains("the entry before it ended at 42, this one begins at 40"), "{words}");
    sqlx::raw_sql(
        "alter table stock_ledger drop constraint stock_ledger_sum;
         update stock_ledger set delta = -50 where sku = 'deadbolt' and delta = 5",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    let words = admin.get("/audit").await.words();
    assert!(words.contains("deadbolt: on the shelf 40, by the ledger -8"), "{words}");
    assert!(words.contains("and it says that 40 and -50 make 45"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_report_postgres_outage_within_two_seconds() {
    const MAX_TIME: Duration = Duration::from_secs(2).saturating_add(BUSY_MACHINE);
    let postgres = proxy::to_postgres().await;
    let mut shop = TestShop::without_replicas().await;
    let url = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    shop.add_replica(&[("DATABASE_URL", &url)]);
    let alice = Visitor::signed_in(&shop, "alice").await;
    postgres.cut().await;
    let (unavailable, paused) = ("Postgres or Redis is unavailable", "Selling is paused.");
    for (visitor, path, status, says) in [
        (&Visitor::new(&shop), "/shop", 200, paused),
        (&Visitor::new(&shop), "/items/deadbolt", 200, paused),
        (&Visitor::new(&shop), "/items/deadbolt/ledger", 503, unavailable),
        (&alice, "/account", 503, unavailable),
        (&alice, "/shop", 200, paused),
    ] {
        let started = Instant::now();
        let page = visitor.get(path).await;
        assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
        assert_eq!(page.status.as_u16(), status, "{path}");
        assert!(page.words().contains(says), "{path}");
        assert!(page.words().contains("The books cannot be read now"), "{path}");
    }
    let started = Instant::now();
    let page = Visitor::new(&shop).get("/problems").await;
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
    assert_eq!(page.status, 200, "this page needs no Postgres");
    postgres.set(Traffic::Forwarded);
    until("the shop is back", async || alice.get("/account").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_order_can_only_be_cancelled() {
    // The order does not expire: the jobs are off.
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (order, csrf) = alice.buy("deadbolt", 1).await;
    let page = alice.get(&order).await;
    assert!(page.words().contains("Held for you for 1"), "{}", page.words());
    let over = "update orders set expires_at = created_at";
    shop.execute(over).await;
    let pay = format!("csrf={csrf}&key={}", page.field("key"));
    let rejected = alice.post(&format!("{order}/pay"), &pay).await;
    assert_eq!(rejected.status, 409);
    let words = rejected.words();
    assert_eq!(words.matches("ot paid in time").count(), 2, "the badge and the title: {words}");
    assert!(
        words.contains("Nothing was paid.") && words.contains("The time to pay is over"),
        "{words}"
    );
    let page = alice.get(&order).await;
    assert!(!page.text.contains("id=\"pay\""));
    assert!(alice.get("/orders").await.words().contains("⊘ Not paid in time"));
    let cancel = format!("csrf={csrf}&key={}", page.field("key"));
    for _ in 0..2 {
        let cancelled = alice.post(&format!("{order}/cancel"), &cancel).await;
        assert_eq!((cancelled.status.as_u16(), &cancelled.location), (303, &order));
    }
    let page = alice.get(&order).await;
    assert!(page.words().contains("Deadbolt, single cylinder cancelled 39 +1 → 40"));
    assert!(!page.text.contains("next-step"), "an empty box: {}", page.text);
    let pay = alice.form_request(&format!("{order}/pay"), &pay).header("Accept-Language", "zh");
    let words = Page::read(pay.send().await.unwrap()).await.words();
    assert!(words.contains("不能支付：该订单已取消。"), "{words}");
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_expired_order_reports_it() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_JOBS", "on")]).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (order, csrf) = alice.buy("deadbolt", 1).await;
    let pay = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
    let over = "update orders set expires_at = created_at";
    shop.execute(over).await;
    until("the order has expired", async || {
        let words = alice.get(&order).await.words();
        words.contains("Not paid in time The units are back in the shop.")
    })
    .await;
    let page = alice.get(&order).await;
    assert!(
        page.words().contains("Deadbolt, single cylinder not paid in time 39 +1 → 40"),
        "{}",
        page.words()
    );
    let rejected = alice.post(&format!("{order}/pay"), &pay).await;
    assert_eq!(rejected.status, 409);
    let words = rejected.words();
    assert_eq!(words.matches("ot paid in time").count(), 3, "badge, title, ledger: {words}");
    assert_eq!(words.matches("order them again").count(), 1, "{words}");
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_address_redirects_to_its_page() {
    let shop = TestShop::start(1).await;
    let anonymous = Visitor::new(&shop);
    let order = "/orders/00000000-0000-7000-8000-000000000000";
    for (path, page) in [
        (format!("{order}/pay"), order),
        (format!("{order}/top-up"), order),
        (format!("{order}/cancel"), order),
        (format!("{order}/refund"), order),
        ("/admin/items".to_owned(), "/admin"),
        ("/admin/items/deadbolt/edit".to_owned(), "/admin/items/deadbolt"),
        ("/admin/items/deadbolt/stock".to_owned(), "/admin/items/deadbolt"),
        ("/account/top-ups".to_owned(), "/account"),
        ("/basket/lines".to_owned(), "/shop"),
        ("/jobs/unpaid/7/retry".to_owned(), "/jobs"),
        ("/lab/scheduler/7/steps".to_owned(), "/lab/scheduler/7"),
        ("/sign-out".to_owned(), "/shop"),
    ] {
        let redirect = anonymous.get(&path).await;
        assert_eq!((redirect.status.as_u16(), redirect.location.as_str()), (303, page), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slash_at_the_end_of_an_address_is_forgiven() {
    let shop = TestShop::start(1).await;
    let anonymous = Visitor::new(&shop);
    for (path, status, place) in [
        ("/shop/", 308, "/shop"),
        ("/items/deadbolt/?x=1", 308, "/items/deadbolt?x=1"),
        ("/nothing/", 308, "/nothing"),
        ("/nothing", 404, ""),
        // Another site, and addresses of programs.
        ("//evil.example/", 404, ""),
        ("/api/items/", 404, ""),
        ("/static/", 404, ""),
    ] {
        let page = anonymous.get(path).await;
        assert_eq!((page.status.as_u16(), page.location.as_str()), (status, place), "{path}");
    }
    assert_eq!(anonymous.post("/basket/", "").await.status, 404);
}
