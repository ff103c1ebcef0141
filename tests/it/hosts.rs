//! The `Host` of a request must be the shop's.

use holdfast_testkit::{TestShop, User, services};

use crate::slow_clients::{read_to_end, send_raw};

#[tokio::test]
async fn foreign_host_is_rejected() {
    let hosts = ("HOLDFAST_PUBLIC_HOSTS", "shop.example.org, *.shop.example.org");
    let class = ("HOLDFAST_CLASS_URL", "http://192.168.1.20:8080");
    let shop = TestShop::start_with(1, &[hosts, class]).await;
    let get = |path: &str, host: &str| shop.anonymous().get(path).header("Host", host);
    for host in ["shop.example.org", "SHOP.example.org:8080", "eu.shop.example.org"] {
        assert_eq!(get("/api/items", host).await.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost", "shop.example.org.evil.example"] {
        let rejected = get("/api/items", host).await;
        assert_ne!(rejected.header("x-request-id"), "");
        rejected.fails(421, "wrong-host");
        for path in ["/healthz", "/readyz", "/metrics", "/static/holdfast.css"] {
            assert_eq!(get(path, host).await.status, 200, "{path}");
        }
    }
    let page = get("/", "evil.example").header("Accept", "text/html").await;
    assert_eq!(page.status, 421);
    // It has its style, and tells a student what to type.
    let advice = "Type http://192.168.1.20:8080/join instead";
    assert!(page.text().contains("<html") && page.text().contains(advice), "{}", page.text());
    assert!(page.text().contains("href=\"http://192.168.1.20:8080/join\""));

    for request in [
        "GET /api/items HTTP/1.0\r\n\r\n",
        "GET http://evil.example/api/items HTTP/1.1\r\nHost: shop.example.org\r\n\
         Connection: close\r\n\r\n",
    ] {
        let response = read_to_end(&mut send_raw(&shop, 0, request).await).await;
        assert!(
            response.starts_with("HTTP/1.1 421") || response.starts_with("HTTP/1.0 421"),
            "{response}"
        );
    }
}

/// A page of another site whose name resolves to loopback can't sign in with a demo password.
#[tokio::test]
async fn up_serves_only_loopback_names() {
    let base_url = &services().running.replicas[0];
    let port = base_url.rsplit_once(':').unwrap().1;
    let anyone = User::anonymous_of(base_url);
    let sign_in =
        |host: &str| anyone.signs_in("admin", "admin").header("Host", format!("{host}:{port}"));

    sign_in("evil.example").fails(421, "wrong-host").await;
    for host in ["127.0.0.1", "localhost", "shop.localhost", "[::1]"] {
        sign_in(host).ok().await;
    }
}
