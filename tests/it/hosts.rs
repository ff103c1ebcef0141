//! The `Host` of a request must be the shop's.

use serde_json::json;

use crate::common::requests::Answer as _;
use crate::common::{Shop, services};
use crate::slow_clients::{read_to_end, send_raw};

#[tokio::test]
async fn foreign_host_is_rejected() {
    let hosts = ("HOLDFAST_PUBLIC_HOSTS", "shop.example.org, *.shop.example.org");
    let shop = Shop::start_with(1, &[hosts]).await;
    let get = |path: &str, host: &str| shop.http.get(shop.url(0, path)).header("Host", host).send();
    for host in ["shop.example.org", "SHOP.example.org:8080", "eu.shop.example.org"] {
        assert_eq!(get("/api/items", host).await.unwrap().status(), 200, "{host}");
    }
    for host in ["evil.example", "localhost", "shop.example.org.evil.example"] {
        let rejected = get("/api/items", host).await.unwrap();
        assert!(rejected.headers().contains_key("x-request-id"));
        assert_eq!(rejected.fails(421).await, "wrong-host", "{host}");
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(get(path, host).await.unwrap().status(), 200, "{path}");
        }
    }
    let page = shop.http.get(shop.url(0, "/")).header("Accept", "text/html");
    let page = page.header("Host", "evil.example").send().await.unwrap();
    assert_eq!(page.status(), 421);
    assert!(page.text().await.unwrap().contains("<html"));
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
    let http = reqwest::Client::new();
    let sign_in = |host: String| {
        let request = http.post(format!("{base_url}/api/sessions")).header("Host", host);
        request.json(&json!({ "user": "admin", "password": "admin" })).send()
    };
    let rejected = sign_in(format!("evil.example:{port}")).await.unwrap();
    rejected.refuses(421, "wrong-host").await;
    for host in ["127.0.0.1", "localhost", "shop.localhost", "[::1]"] {
        let response = sign_in(format!("{host}:{port}")).await.unwrap();
        response.gives(201).await;
    }
}
