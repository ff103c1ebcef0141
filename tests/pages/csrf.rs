//! Forms of other sites, and forms of this site that a proxy or a browser has made hard to
//! recognize.

use holdfast_testkit::TestShop;

use crate::lab::register_runner;
use crate::visitor::{Page, Visitor};

/// The forms that change data.
const FORMS: [(&str, &str); 18] = [
    ("/basket/lines", "sku=deadbolt&quantity=1"),
    ("/basket", "sku=deadbolt&quantity=1"),
    ("/orders", "token=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("ORDER/pay", "key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("ORDER/top-up", "missing_cents=5&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("ORDER/cancel", "key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("ORDER/refund", "key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("/account/top-ups", "amount=5&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("/admin/items", "sku=new&name=New&price=1&stock=1&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("/admin/items/deadbolt/edit", "name=New&price=1&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    (
        "/admin/items/deadbolt/stock",
        "delta=5&reason=restock&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d",
    ),
    ("/lab/runs", "strategies=none"),
    ("/lab/lessons/lost-update/answers", "guess=0"),
    ("/lab/lessons/lost-update/runs", "guess=0"),
    ("/admin/users/alice/disabled", "disabled=yes&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("/admin/users/alice/sessions", "key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("/admin/users/alice/password", "new=Quince-jam-7&key=0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"),
    ("/sign-out", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn form_without_csrf_token_changes_nothing() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let (order, csrf) = admin.buy("deadbolt", 1).await;
    let books = "select count(*) + coalesce(sum(after), 0)::bigint from stock_ledger";
    let before = shop.number(books).await;
    for (path, form) in FORMS {
        let path = path.replace("ORDER", &order);
        for csrf in ["", "csrf=forged&", &format!("csrf={}&", &csrf[1..])] {
            let rejected = admin.post(&path, &format!("{csrf}{form}")).await;
            assert_eq!(rejected.status, 403, "{path} {csrf}: {}", rejected.text);
            let words = rejected.words();
            let is_explained = words.contains("Reload the page") || words.contains("reload");
            // A form with texts is shown again.
            assert!(is_explained || words.contains("Not saved yet"), "{path}: {words}");
        }
    }
    assert_eq!(shop.number(books).await, before);
    assert_eq!(shop.number("select count(*) from orders where status = 'pending'").await, 1);
    assert_eq!(shop.number("select count(*) from top_ups").await, 4);
    assert_eq!(shop.number("select count(*) from lab_runs").await, 0);
    assert_eq!(shop.number("select count(*) from admin_log").await, 0);
    assert_eq!(admin.get("/audit").await.status, 200, "the session remains");
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_site_form_is_rejected() {
    let shop = TestShop::start(1).await;
    register_runner(&shop).await;
    let forms = [
        ("/sign-in", "user=alice&password=alice"),
        ("/sign-up", "user=mallory&password=mallory-s"),
        ("/basket/lines", "sku=deadbolt&quantity=1"),
        ("/lab/lessons/lost-update/runs", "guess=0"),
        ("/lab/runs", "strategies=none"),
        ("/lab/files", ""),
    ];
    for (path, form) in forms {
        let anonymous = Visitor::new(&shop);
        for (name, value) in [
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Site", "same-site"),
            ("Origin", "http://evil.example"),
            ("Origin", "null"),
        ] {
            let request = anonymous.form_request(path, form).header(name, value);
            let rejected = Page::read(request.send().await.unwrap()).await;
            assert_eq!(rejected.status, 403, "{path} {name}: {value}");
        }
        // Without a file, that form is not accepted in any case.
        if path != "/lab/files" {
            let request = anonymous.form_request(path, form).header("Origin", &anonymous.base);
            let accepted = Page::read(request.send().await.unwrap()).await;
            assert_eq!(accepted.status, 303, "{path}: {}", accepted.text);
        }
    }

    let runs = shop.number("select count(*) from lab_runs").await;
    assert_eq!(runs, 2, "only the site's own forms start one");
}

/// A proxy that sends its own `Host` upstream, or a browser that hides its origin.
const DISGUISES: [[(&str, &str); 2]; 2] = [
    [("Host", "upstream:8080"), ("Origin", "https://shop.example.org")],
    [("Host", "upstream:8080"), ("Origin", "null")],
];

#[tokio::test(flavor = "multi_thread")]
async fn own_form_passes_a_rewriting_proxy() {
    let shop = TestShop::start(1).await;
    let send = async |visitor: &Visitor, path: &str, form: &str, headers: [(&str, &str); 3]| {
        let request = visitor.form_request(path, form);
        let request = headers.iter().fold(request, |request, (name, value)| {
            // In place of the one that the client would send itself.
            request.header(*name, *value)
        });
        Page::read(request.send().await.unwrap()).await
    };

    for [host, origin] in DISGUISES {
        let alice = Visitor::new(&shop);
        let sign_in = "user=alice&password=alice";
        let add = "sku=deadbolt&quantity=1";

        for site in ["cross-site", "same-site", "none", ""] {
            let headers = [host, origin, ("Sec-Fetch-Site", site)];
            let rejected = send(&alice, "/sign-in", sign_in, headers).await;
            assert_eq!(rejected.status, 403, "{site} {origin:?}");
        }
        let unknown = send(&alice, "/sign-in", sign_in, [host, origin, ("Accept", "*/*")]).await;
        assert_eq!(unknown.status, 403, "without Sec-Fetch-Site, Origin decides: {origin:?}");

        let own = [host, origin, ("Sec-Fetch-Site", "same-origin")];
        let added = send(&alice, "/basket/lines", add, own).await;
        assert_eq!(added.status, 303, "{origin:?}: {}", added.words());
        let signed_in = send(&alice, "/sign-in", sign_in, own).await;
        assert_eq!(signed_in.status, 303, "{origin:?}: {}", signed_in.words());

        let without_token = send(&alice, "/basket/lines", add, own).await;
        assert_eq!(without_token.status, 403, "a session's form needs its token: {origin:?}");
        let csrf = alice.get("/basket").await.csrf();
        let added = send(&alice, "/basket/lines", &format!("csrf={csrf}&{add}"), own).await;
        assert_eq!(added.status, 303, "{origin:?}: {}", added.words());
    }
}
