//! Requests for a protocol upgrade, which the shop does not support: it ignores the upgrade, and
//! closes the connection, because the bytes after the request may not be HTTP/1.1.

use futures_util::future::join_all;
use holdfast_testkit::TestShop;

use crate::slow_clients::{assert_all_headers, read_to_end, send_raw};

const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13";
const H2C: &str = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk";

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_is_ignored_at_once() {
    let shop = TestShop::start(1).await;
    let session = "{\"user\":\"alice\",\"password\":\"alice\"}";
    let json = format!("Content-Type: application/json\r\nContent-Length: {}", session.len());
    let chunked = "Content-Type: application/json\r\nTransfer-Encoding: chunked";
    let chunks = format!("{:x}\r\n{session}\r\n0\r\n\r\n", session.len());
    let requests = [
        ("GET /api/items", WEBSOCKET, "", 200),
        ("GET /", "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket", "", 200),
        ("GET /api/items", "Upgrade: websocket", "", 200),
        ("GET /api/items", H2C, "", 200),
        ("GET /api/items", "Connection: upgrade", "", 200),
        ("HEAD /api/items", WEBSOCKET, "", 200),
        ("POST /api/sessions", &format!("{WEBSOCKET}\r\n{json}"), session, 201),
        ("POST /api/sessions", &format!("{H2C}\r\n{json}"), session, 201),
        ("POST /api/sessions", &format!("{WEBSOCKET}\r\n{chunked}"), &chunks, 201),
        ("CONNECT example.org:443", "Content-Length: 0", "", 404),
    ];
    let responses = requests.map(async |(line, headers, body, status)| {
        let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n{body}");
        let response = read_to_end(&mut send_raw(&shop, 0, &request).await).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
        assert!(response.contains("\r\nconnection: close\r\n"), "{request}: {response}");
        assert_all_headers(&response);
    });
    join_all(responses).await;
}

/// A proxy that treats the connection as a tunnel must not forward smuggled requests.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_after_upgrade_are_no_request() {
    let shop = TestShop::start(1).await;
    let websocket =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{WEBSOCKET}\r\n\r\n").repeat(2);
    let responses = read_to_end(&mut send_raw(&shop, 0, &websocket).await).await;
    assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{responses}");
}
