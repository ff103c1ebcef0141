//! The admin's pages of orders and users: who reaches them, and what their forms do.

use std::collections::BTreeSet;

use holdfast_testkit::TestShop;
use regex::Regex;

use crate::visitor::{Page, Visitor};

/// The source of the routes: the test knows every address that there is.
const ROUTES: &str = include_str!("../../src/web/pages/admin/mod.rs");

/// Every address below `/admin` and `/api/admin`.
async fn addresses(shop: &TestShop) -> BTreeSet<String> {
    let description = shop.anonymous().reads("/api/openapi.json").await;
    let described = description["paths"].as_object().unwrap().keys();
    let described = described.filter(|path| path.starts_with("/api/admin")).cloned();
    let route = Regex::new(r#""(/admin[^"]*)""#).unwrap();
    let pages = route.captures_iter(ROUTES).map(|found| found[1].to_owned());
    let all: BTreeSet<String> = described.chain(pages).collect();

    let filled = |path: &String| {
        let id = "0190a6e4-0000-7000-8000-000000000000";
        path.replace("{sku}", "deadbolt").replace("{name}", "bob").replace("{id}", id)
    };
    all.iter().map(filled).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admins_reach_the_admin_pages() {
    let shop = TestShop::start(1).await;
    let (nobody, alice) = (Visitor::new(&shop), Visitor::signed_in(&shop, "alice").await);
    let csrf = alice.get("/account").await.csrf();
    let addresses = addresses(&shop).await;
    assert!(addresses.len() > 15, "{addresses:?}");

    for address in addresses {
        let shown = alice.get(&address).await;
        // The address of a form leads a GET to the form's page.
        let is_form = shown.status == 303 && address.starts_with(&shown.location);
        assert!(
            shown.status == 403 || shown.status == 405 || is_form,
            "{address}: {}",
            shown.status
        );
        let form = format!("csrf={csrf}&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d&disabled=yes");
        let sent = alice.post(&address, &form).await;
        assert!(matches!(sent.status.as_u16(), 403 | 405), "{address}: {}", sent.words());

        let shown = nobody.get(&address).await;
        let sign_in = shown.status == 303 && shown.location.starts_with("/sign-in?next=");
        let is_api = address.starts_with("/api/");
        let refused = if is_api { matches!(shown.status.as_u16(), 401 | 405) } else { sign_in };
        let is_form = shown.status == 303 && address.starts_with(&shown.location);
        assert!(refused || is_form, "{address}: {} {}", shown.status, shown.location);
    }
    assert_eq!(shop.number("select count(*) from users where disabled_at is not null").await, 0);

    for page in ["/audit", "/locks"] {
        assert_eq!(alice.get(page).await.status, 403, "{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_is_changed_once_per_form() {
    let shop = TestShop::start(2).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    Visitor::signed_in(&shop, "alice").await;
    let other = Visitor { http: admin.http.clone(), base: shop.replicas[1].base_url.clone() };
    let page = "/admin/users/alice";

    for (form, fields, done, english, chinese) in [
        ("sessions", "", "sessions", "All sessions of alice have ended", "已结束 alice 的全部会话"),
        ("disabled", "&disabled=yes", "disable", "alice is disabled", "已停用 alice"),
        ("disabled", "&disabled=no", "enable", "alice can sign in again", "alice 可以重新登录了"),
        ("password", "&new=Quince-jam-for-7", "password", "was reset", "已重置 alice 的密码"),
    ] {
        let shown = admin.get(page).await;
        let body = format!("csrf={}&key={}{fields}", shown.csrf(), shown.field("key"));
        let address = format!("{page}/{form}");
        let (first, second) =
            tokio::join!(admin.post(&address, &body), other.post(&address, &body));
        for sent in [first, second] {
            let place = format!("{page}?done={done}");
            assert_eq!((sent.status.as_u16(), &sent.location), (303, &place), "{}", sent.words());
        }
        let place = format!("{page}?done={done}");
        assert!(admin.get(&place).await.words().contains(english), "{done}");
        assert!(admin.get_in("zh", &place).await.words().contains(chinese), "{done}");
    }
    assert_eq!(shop.number("select count(*) from admin_log").await, 4);
    assert_eq!(shop.number("select count(*) from users where disabled_at is not null").await, 0);

    let shown = admin.get(page).await;
    assert!(shown.words().contains("password reset"), "its log");
    let body = format!("csrf={}&key={}&new=short", shown.csrf(), shown.field("key"));
    for (language, why) in [("en", "8 to 256 characters"), ("zh", "8 到 256 个字符")] {
        let request = admin.form_request(&format!("{page}/password"), &body);
        let request = request.header("Accept-Language", language);
        let rejected = Page::read(request.send().await.unwrap()).await;
        assert_eq!(rejected.status, 422);
        assert!(rejected.text.contains("id=\"new-wrong\"") && rejected.words().contains(why));
    }
    let own = admin.get("/admin/users/admin").await;
    assert!(own.words().contains("This is you") && !own.text.contains("name=\"new\""));
    let body = format!("csrf={}&key={}&disabled=yes", own.csrf(), shown.field("key"));
    assert_eq!(admin.post("/admin/users/admin/disabled", &body).await.status, 422);
    assert_eq!(admin.get("/admin/users/nemo").await.status, 404);
    // Its log is short here; the whole one has a page.
    let log = admin.get("/admin/log?user=alice").await;
    assert!(log.words().contains("Log of alice") && log.words().contains("password reset"));
    assert!(admin.get("/admin/log?user=bob&after=x").await.words().contains("Nothing was changed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_finds_an_order_and_sees_what_it_changed() {
    let shop = TestShop::start(1).await;
    let (alice, admin) =
        (Visitor::signed_in(&shop, "alice").await, Visitor::signed_in(&shop, "admin").await);
    let (order, csrf) = alice.buy("deadbolt", 2).await;
    let pay = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
    alice.post(&format!("{order}/pay"), &pay).await;
    let id = order.strip_prefix("/orders/").unwrap();

    let end = &id[24..];
    let queries =
        ["", "?user=Alice&status=paid", "?sku=deadbolt", "?sku=ADB", "?user=lic", "?after=zzz"];
    for query in queries.into_iter().chain([format!("?id=%23{end}").as_str()]) {
        let list = admin.get(&format!("/admin/orders{query}")).await;
        let link = format!("<a href=\"/admin/orders/{id}\"><code>{end}</code></a>");
        assert!(list.text.contains(&link), "{query}: {}", list.words());
    }
    shop.execute("insert into items (sku, name, price_cents, stock) values ('dead', 'D', 1, 0)")
        .await;
    for query in [
        "?sku=Dead",
        "?user=nemo",
        "?user=%3Cb%3E",
        "?status=lost",
        "?status=expired",
        "?id=1",
        "?sku=%00",
    ] {
        let list = admin.get(&format!("/admin/orders{query}")).await;
        let is_empty = list.words().contains("No order matches.");
        assert!(list.status == 200 && is_empty, "{query}: {}", list.words());
    }

    let shown = admin.get(&format!("/admin/orders/{id}")).await;
    assert!(shown.words().contains("Order of alice") && shown.words().contains("40 −2 → 38"));
    assert!(shown.text.contains("href=\"/admin/users/alice\""));
    let (_, times) = shown.text.split_once("id=\"times\"").unwrap();
    let times = times.split("</dl>").next().unwrap();
    assert_eq!(times.matches("data-utc").count(), 3, "{times}");
    assert!(shown.words().contains("Placed2") && shown.words().contains("To be paid by2"));
    // The own page is the customer's.
    assert_eq!(admin.get(&order).await.status, 404);
    let ledger = admin.get("/items/deadbolt/ledger").await;
    assert!(ledger.text.contains(&format!("href=\"/admin/orders/{id}\"")));
    let account = admin.get("/admin/users/alice").await;
    assert!(account.text.contains(&format!("href=\"/admin/orders/{id}\"")));

    // The ledger shows the order to all, and links it for its owner only.
    let bob = Visitor::signed_in(&shop, "bob").await;
    let foreign = bob.get(&order).await;
    assert_eq!(foreign.status, 404);
    assert!(foreign.words().contains("or it belongs to another user"), "{}", foreign.words());
    let link = format!("href=\"{order}\"");
    assert!(alice.get("/items/deadbolt/ledger").await.text.contains(&link));
    assert!(!bob.get("/items/deadbolt/ledger").await.text.contains(&link), "no link for others");
}
