//! Which visitors may read the lab, and which may run it; the queue of their runs.

use std::time::Duration;

use holdfast_lab::store::{MAX_OPEN_RUNS_OF_USER, MAX_QUEUED_RUNS};
use holdfast_testkit::{TestShop, services};
use reqwest::Version;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::lab::{EDGE, ID, oversold, register_runner, with_run};
use crate::visitor::{Page, Visitor};

const LESSON_FORM: &str = "/lab/lessons/lost-update/runs";

/// Sends a form as a visitor of another machine, whose proxy is on this one.
async fn post_from_network(visitor: &Visitor, path: &str, form: &str) -> Page {
    let request = visitor.form_request(path, form).header("X-Forwarded-For", "192.0.2.1");
    Page::read(request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lab_is_readable_without_session() {
    let mut shop = with_run(&oversold()).await;
    let run = format!("/lab/runs/{ID}");
    let (file, api) = (format!("{run}/file"), format!("/api{run}"));
    let pages =
        ["/lab", "/lab/runs", "/lab/lessons/lost-update", &run, &file, &api, "/api/lab/runs"];
    let visitor = Visitor::new(&shop);
    for path in pages {
        let request = visitor.page_request(path).header("X-Forwarded-For", "192.0.2.1");
        assert_eq!(request.send().await.unwrap().status(), 200, "{path}");
    }
    for path in ["/lab/lessons/none-such", "/lab/runs/1", &run.replace('5', "6")] {
        assert_eq!(visitor.get(path).await.status, 404, "{path}");
    }
    assert_eq!(visitor.get("/api/lab/paused").await.status, 401, "the rest is the admin's");
    assert!(visitor.get("/shop").await.text.contains("href=\"/lab\""));

    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    let off = Visitor { base: shop.replicas[1].base_url.clone(), http: visitor.http };
    for path in pages {
        let rejected = off.get(path).await;
        assert_eq!(rejected.status, 403, "{path}");
        assert!(rejected.text.contains("lab is off"), "{}", rejected.text);
        assert!(!rejected.text.contains("43 units"), "{}", rejected.text);
    }
    assert!(!off.get("/shop").await.text.contains("href=\"/lab\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn network_visitor_needs_public_lab() {
    let mut shop = TestShop::start(1).await;
    shop.add_replica(&[("HOLDFAST_LAB", "public")]);
    register_runner(&shop).await;
    for (replica, of_user) in [(0, 403), (1, 303)] {
        let at =
            |visitor: Visitor| Visitor { base: shop.replicas[replica].base_url.clone(), ..visitor };
        let anonymous = at(Visitor::new(&shop));
        for (path, form, page) in [
            (LESSON_FORM, "guess=0", "/lab/lessons/lost-update"),
            ("/lab/runs", "strategies=none", "/lab/runs"),
        ] {
            let rejected = post_from_network(&anonymous, path, form).await;
            let sign_in = format!("/sign-in?next={page}");
            assert_eq!((rejected.status.as_u16(), rejected.location), (303, sign_in), "{path}");
        }
        let page =
            anonymous.page_request("/lab/lessons/fence").header("Forwarded", "for=192.0.2.1");
        let words = Page::read(page.send().await.unwrap()).await.words();
        assert!(words.contains("Sign in to run this.") && !words.contains("Answer and run"));
        // The demo user is offered to who may run it as a customer.
        let page = anonymous.page_request("/sign-in?next=/lab/lessons/fence");
        let page = page.header("Forwarded", "for=192.0.2.1").send().await.unwrap();
        let is_offered = Page::read(page).await.words().contains("Continue as alice");
        assert_eq!(is_offered, of_user == 303);
        let alice = at(Visitor::signed_in(&shop, "alice").await);
        let csrf = alice.get("/basket").await.csrf();
        let sent = post_from_network(&alice, LESSON_FORM, &format!("csrf={csrf}")).await;
        assert_eq!(sent.status.as_u16(), of_user, "{}", sent.words());
    }
    let admin = Visitor::signed_in(&shop, "admin").await;
    let csrf = admin.get("/basket").await.csrf();
    let sent = post_from_network(&admin, LESSON_FORM, &format!("csrf={csrf}")).await;
    assert!(sent.location.starts_with("/lab/runs/"), "{}", sent.words());
}

/// Requests a lesson as the visitor or a proxy sends it; returns whether the page offers to run it.
async fn may_run(base_url: &str, version: Version, header: (&str, &str)) -> bool {
    let page = reqwest::Client::new().get(format!("{base_url}/lab/lessons/fence"));
    let page = page.header("Accept", "text/html").version(version).header(header.0, header.1);
    let words = Page::read(page.send().await.unwrap()).await.words();
    let (runs, signs_in) =
        (words.contains("Answer and run"), words.contains("Sign in to run this."));
    assert!(runs != signs_in, "{words}");
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_through_any_proxy_is_not_local() {
    let shop = TestShop::start(1).await;
    let of_serve = shop.replicas[0].base_url.as_str();
    let of_up = services().running.replicas[0].as_str();

    for base_url in [of_serve, of_up] {
        for host in ["localhost:8080", "shop.localhost", "127.0.0.1", "[::1]:8080"] {
            assert!(may_run(base_url, Version::HTTP_11, ("Host", host)).await, "{host}");
        }

        // nginx speaks HTTP/1.0 to its upstream, unless told otherwise, and adds no header.
        assert!(!may_run(base_url, Version::HTTP_10, ("Host", "127.0.0.1:8080")).await);

        for name in [
            "Forwarded",
            "Via",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Forwarded-Server",
            "X-Real-IP",
            "X-Client-IP",
            "X-Original-Host",
            "True-Client-IP",
            "CF-Connecting-IP",
            "Fastly-Client-IP",
            "X-Envoy-External-Address",
            "X-Amzn-Trace-Id",
            "X-Azure-ClientIP",
        ] {
            assert!(!may_run(base_url, Version::HTTP_11, (name, "127.0.0.1")).await, "{name}");
        }
    }

    for host in ["shop.example.org", "upstream", "127.0.0.1.example.org", "192.0.2.1"] {
        assert!(!may_run(of_serve, Version::HTTP_11, ("Host", host)).await, "{host}");
    }
}

/// Only `up` knows that nothing stands in front of its listener.
#[tokio::test(flavor = "multi_thread")]
async fn plain_serve_has_no_local_visitors() {
    let mut shop = TestShop::start(0).await;
    // The default.
    shop.add_replica(&[("HOLDFAST_LOCAL_VISITORS", "off")]);
    let base_url = &shop.replicas[0].base_url;
    assert!(!may_run(base_url, Version::HTTP_11, ("Host", "localhost")).await);

    register_runner(&shop).await;
    let visitor = Visitor::new(&shop);
    let sent = visitor.post(LESSON_FORM, "guess=0").await;
    assert!(sent.location.starts_with("/sign-in"), "{}", sent.words());
    assert_eq!(shop.number("select count(*) from lab_runs").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_queue_in_order_up_to_a_bound() {
    let mut shop = TestShop::start(1).await;
    shop.add_replica(&[("HOLDFAST_LAB", "public")]);
    let (first, second) = (Visitor::new(&shop), Visitor::new(&shop));
    let load = async |visitor: &Visitor| visitor.post("/lab/runs", "strategies=none").await;
    assert_eq!(load(&first).await.status, 503, "there is no runner");
    register_runner(&shop).await;
    let (one, two) = (load(&first).await.location, load(&second).await.location);
    assert_ne!(one, two, "a load is its visitor's own");
    for (run, place) in [(&one, "Queued, 1st in line"), (&two, "Queued, 2nd in line")] {
        let words = second.get(run).await.words();
        assert!(words.contains(place), "{words}");
    }
    let start = "update lab_runs set state = 'running'
        where id = (select id from lab_runs where state = 'queued' order by created_at, id limit 1)";
    sqlx::query(start).execute(&shop.pool).await.unwrap();
    let state = async |run: &str| {
        let run = first.http.get(format!("{}/api{run}", first.base)).send().await.unwrap();
        let run: serde_json::Value = run.json().await.unwrap();
        (run["state"].as_str().unwrap().to_owned(), run["position"].as_i64())
    };
    assert_eq!(state(&one).await, ("running".to_owned(), None));
    assert_eq!(state(&two).await, ("queued".to_owned(), Some(1)));

    let alice = Visitor::signed_in(&shop, "alice").await;
    let alice = Visitor { base: shop.replicas[1].base_url.clone(), ..alice };
    let form = format!("strategies=none&csrf={}", alice.get("/basket").await.csrf());
    for _ in 0..MAX_OPEN_RUNS_OF_USER {
        assert_eq!(post_from_network(&alice, "/lab/runs", &form).await.status, 303);
    }
    assert_eq!(post_from_network(&alice, "/lab/runs", &form).await.status, 429);
    for _ in MAX_OPEN_RUNS_OF_USER + 1..MAX_QUEUED_RUNS {
        assert_eq!(load(&first).await.status, 303);
    }
    let full = first.form_request("/lab/runs", "strategies=none").send().await.unwrap();
    assert_eq!(
        (full.status().as_u16(), full.headers()["retry-after"].as_bytes()),
        (503, &b"15"[..])
    );
    let words = Page::read(full).await.words();
    assert!(words.contains("32 runs of the lab are queued already"), "{words}");
}

/// The response is sent before the body ends.
#[tokio::test(flavor = "multi_thread")]
async fn large_file_without_permission_is_not_read() {
    let mut shop = TestShop::start(1).await;
    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    for (replica, session, expected) in [
        (0, String::new(), "HTTP/1.1 401"),
        (0, format!("Cookie: holdfast_session={}\r\n", alice.token), "HTTP/1.1 403"),
        (1, format!("Cookie: holdfast_session={}\r\n", admin.token), "HTTP/1.1 403"),
    ] {
        let address = shop.url(replica, "").replace("http://", "");
        let mut connection = tokio::net::TcpStream::connect(&address).await.unwrap();
        let form = format!(
            "POST /lab/files HTTP/1.1\r\nHost: {address}\r\nX-Forwarded-For: 192.0.2.1\r\n{session}Content-Length: 20000000\r\n\
             Content-Type: multipart/form-data; boundary={EDGE}\r\n\r\n--{EDGE}\r\n\
             Content-Disposition: form-data; name=\"file\"\r\n\r\n"
        );
        connection.write_all(form.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        let response = connection.read_exact(&mut status);
        // Shorter than the request timeout, which would end the wait for the body.
        tokio::time::timeout(Duration::from_secs(5), response).await.unwrap().unwrap();
        assert_eq!(std::str::from_utf8(&status).unwrap(), expected);
    }
}
