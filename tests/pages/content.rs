//! What pages contain: orders of lab items, distant forks, names of goods, held locks, assets,
//! nothing inline.

use holdfast_testkit::{TestShop, until};
use serde_json::Value;

use crate::visitor::{Page, Visitor};

#[tokio::test(flavor = "multi_thread")]
async fn lab_orders_are_listed_separately() {
    let shop = TestShop::start(1).await;
    let user = shop.sign_in("alice").await;
    let own = user.orders("deadbolt", 1).ok().await;
    let own = own["id"].as_str().unwrap();
    let alice = Visitor::signed_in(&shop, "alice").await;
    assert!(!alice.get("/orders").await.text.contains("lab items"));
    let sku = shop.lab_item(50).await;
    for _ in 0..30 {
        user.orders(&sku, 1).ok().await;
    }
    let page = alice.get("/orders").await;
    assert!(page.words().contains("30 orders of lab items are not shown."), "{}", page.words());
    assert_eq!(page.text.matches("href=\"/orders/").count(), 1);
    assert!(page.text.contains(own) && page.text.contains("href=\"/orders?lab=on\""));
    let all = alice.get("/orders?lab=on").await;
    assert_eq!(all.text.matches(">lab</span>").count(), 25);
    let older = all.text.split("href=\"").find(|href| href.starts_with("/orders?after=")).unwrap();
    let older = older.split('"').next().unwrap().replace("&amp;", "&");
    let rest = alice.get(&older).await;
    assert_eq!(rest.text.matches(">lab</span>").count(), 5);
    assert!(rest.text.contains(own));
}

/// A page scans a bounded number of orders, however many a user has in the lab.
#[tokio::test(flavor = "multi_thread")]
async fn page_scans_a_bounded_number_of_lab_orders() {
    let shop = TestShop::start(1).await;
    let user = shop.sign_in("alice").await;
    let own = user.orders("deadbolt", 1).ok().await;
    let own = own["id"].as_str().unwrap();
    let sku = shop.lab_item(50).await;
    let place = "with placed as (
            insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
            select ('ffffffff-ffff-7fff-bfff-' || lpad(to_hex(n), 12, '0'))::uuid, o.user_id,
                   'cancelled', 100, 'a-token-of-16-letters-' || n, o.created_at, o.expires_at
              from orders o, generate_series(1, 300) n returning id)
         insert into order_lines (order_id, sku, quantity, unit_price_cents, name, entry_seq)
         select id, $1, 1, 100, 'Lab', 0 from placed";
    sqlx::query(place).bind(&sku).execute(&shop.pool).await.unwrap();
    let alice = Visitor::signed_in(&shop, "alice").await;
    let page = alice.get("/orders").await;
    assert!(page.words().contains("200 orders of lab items are not shown."), "{}", page.words());
    assert!(!page.text.contains(own), "it is beyond what a page scans");
    let older = page.text.split("href=\"").find(|href| href.starts_with("/orders?after=")).unwrap();
    let rest = alice.get(older.split('"').next().unwrap()).await;
    assert!(rest.words().contains("100 orders of lab items are not shown."), "{}", rest.words());
    assert!(rest.text.contains(own));
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_links_to_entry_on_other_page() {
    let shop = TestShop::start(1).await;
    shop.execute(
        "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
         select 'deadbolt', 39 + n, 1, 40 + n, case n when 80 then 2 else n + 1 end, 'restock',
                gen_random_uuid() from generate_series(1, 80) n order by n",
    )
    .await;
    let visitor = Visitor::new(&shop);
    let page = visitor.get("/items/deadbolt/ledger").await;
    let link = page.text.split("as did <a href=\"").nth(1).unwrap();
    let (link, anchor) = link.split('"').next().unwrap().split_once('#').unwrap();
    let other = visitor.get(link).await;
    assert!(other.text.contains(&format!("id=\"{anchor}\"")), "{link}#{anchor}");
    assert!(other.words().contains("Fork: it read version 2, as did"));
}

#[tokio::test(flavor = "multi_thread")]
async fn basket_shows_available_stock() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let (_, csrf) = alice.fill_basket("deadbolt", 500).await;
    let words = alice.get("/basket").await.words();
    assert!(!words.contains("We hold the units"), "{words}");
    assert!(words.contains("Only 40 left. Lower the quantity."), "{words}");
    let form = format!("csrf={csrf}&sku=deadbolt&quantity=5000");
    let wrong = alice.post("/basket", &form).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.words().contains("Enter a whole number from 0 to 1,000."));
    assert_eq!(wrong.field("quantity\" type=\"number\" min=\"0\" max=\"1000"), "5000");
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_goods_have_a_name_in_each_language() {
    let shop = TestShop::start(1).await;
    let user = shop.sign_in("alice").await;
    let order = user.orders("deadbolt", 1).ok().await;
    let order = format!("/orders/{}", order["id"].as_str().unwrap());
    let alice = Visitor::signed_in(&shop, "alice").await;
    alice.fill_basket("deadbolt", 1).await;
    let paths = ["/shop", "/items/deadbolt", "/items/deadbolt/ledger", "/basket", "/orders"];
    for path in paths.into_iter().chain([order.as_str()]) {
        let english = alice.get(path).await.words();
        assert!(english.contains("Deadbolt, single cylinder"), "{path}: {english}");
        let chinese = alice.get_in("zh", path).await.words();
        assert!(chinese.contains("单锁芯门闩锁"), "{path}: {chinese}");
        assert!(!chinese.contains("Deadbolt"), "{path}: {chinese}");
    }
    let goods: Value = serde_json::from_str(&alice.get("/api/items").await.text).unwrap();
    let shown = alice.get_in("zh", "/shop").await.words();
    for item in goods["items"].as_array().unwrap() {
        let name = item["name"].as_str().unwrap();
        assert!(!shown.contains(name), "no Chinese name: {name}");
    }
    // A changed name is shown in every language, unless it has another one in Chinese.
    shop.execute("update items set name = 'Bolt', name_zh = null where sku = 'deadbolt'").await;
    let renamed = alice.get_in("zh", "/items/deadbolt").await.words();
    assert!(renamed.contains("Bolt") && !renamed.contains("单锁芯门闩锁"), "{renamed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_page_shows_holder_and_waiters() {
    let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", "fenced")]).await;
    let user = shop.sign_in("alice").await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    assert!(admin.get("/locks").await.words().contains("No lock is held"));
    let sku = shop.lab_item(10).await;
    let slow = |n| user.at(n).orders(&sku, 1).work_ms(800).send();
    let orders = [slow(0), slow(1)];
    until("one order holds the lock, one waits", async || {
        let page = admin.get("/locks").await;
        assert_eq!(page.status, 200, "{}", page.text);
        page.words().contains(&format!("lock:{{sku:{sku}}}"))
            && [0, 1].iter().any(|n: &usize| {
                page.text.contains(&format!("\">{}</code>", shop.replicas[*n].name()))
            })
            && page.text.contains("data-name=\"Waiting\" class=\"number\">1</td>")
    })
    .await;
    for order in orders {
        order.succeeds(201).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_in_user_is_redirected_from_sign_up() {
    let shop = TestShop::start(1).await;
    assert_eq!(Visitor::new(&shop).get("/sign-up").await.status, 200);
    let alice = Visitor::signed_in(&shop, "alice").await.get("/sign-up").await;
    assert_eq!((alice.status.as_u16(), alice.location.as_str()), (303, "/shop"));
}

/// The lab's pages are compressed; a problem page in place of one is not, and must not say so.
#[tokio::test(flavor = "multi_thread")]
async fn problem_pages_state_their_own_encoding() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    for path in ["/lab/runs/nothing", "/lab/lessons/nothing", "/nothing-here"] {
        let page = admin.page_request(path).header("Accept-Encoding", "gzip").send().await.unwrap();
        assert_eq!(page.headers().get("content-encoding"), None, "{path}");
        let page = Page::read(page).await;
        assert_eq!(page.status, 404, "{path}");
        assert!(page.text.contains("<h1>"), "{path}: {}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_pages_show_no_false_break() {
    let shop = TestShop::start(1).await;
    shop.execute(
        "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
         select 'deadbolt', 39 + n, 1, 40 + n, n, 'restock', gen_random_uuid()
           from generate_series(1, 99) n order by n",
    )
    .await;
    let visitor = Visitor::new(&shop);
    let newest = visitor.get("/items/deadbolt/ledger").await;
    assert_eq!(newest.text.matches("class=\"entry").count(), 50);
    let older = newest.text.split("href=\"").find(|href| href.contains("?before=")).unwrap();
    let oldest = visitor.get(older.split('"').next().unwrap()).await;
    assert_eq!(oldest.text.matches("class=\"entry").count(), 50);
    assert!(oldest.words().contains("0 +40 → 40 opening stock"));
    for page in [&newest, &oldest] {
        assert!(!page.words().contains("broken here"), "{}", page.words());
    }
    assert!(!oldest.text.contains("?before="));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_small_without_inline_code() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let (order, _) = admin.buy("deadbolt", 1).await;
    admin.fill_basket("key-ring", 1).await;
    let mut pages = vec![order.as_str(), "/items/deadbolt", "/items/deadbolt/ledger"];
    pages.extend([
        "/",
        "/shop",
        "/basket",
        "/orders",
        "/account",
        "/admin",
        "/admin/items/deadbolt",
        "/admin/log",
        "/audit",
        "/locks",
        "/lab",
        "/lab/runs",
        "/lab/lessons/lost-update",
        "/problems",
        "/sign-in",
        "/which-lock?processes=several&money=yes&fence=yes&hot=yes&wait=yes",
    ]);
    let asset = |page: &Page, name: &str| {
        let at = page.text.find(&format!("/static/{name}")).unwrap();
        page.text[at..].split('"').next().unwrap().to_owned()
    };
    let front_page = admin.get("/").await;
    let mut assets = 0;
    for name in ["holdfast.css", "holdfast.js", "holdfast.svg"] {
        let response = admin.page_request(&asset(&front_page, name)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.headers()["cache-control"].to_str().unwrap().contains("immutable"));
        assets += response.bytes().await.unwrap().len();
    }
    for path in pages {
        let page = admin.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.len() + assets < 100_000, "{path}: {} bytes", page.text.len() + assets);
        for inline in [" style=", " onclick=", "<style", "javascript:", "<script>"] {
            assert!(!page.text.contains(inline), "{path} has {inline}");
        }
    }
}
