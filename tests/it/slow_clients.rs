//! Clients that send their body slowly, or without an end, and requests that take too long.

use std::time::Duration;

use holdfast_testkit::{CONDITION_TIMEOUT, TestShop};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use crate::metrics::{metrics, value};

/// A connection to that replica, on which `request` was sent.
pub async fn send_raw(shop: &TestShop, replica: usize, request: &str) -> TcpStream {
    let address = shop.replicas[replica].base_url.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// Reads what the replica sends until it closes the connection.
pub async fn read_to_end(connection: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(CONDITION_TIMEOUT, connection.read_to_end(&mut bytes)).await;
    // It may end with a reset, because the replica has not read all that was sent.
    let _ = read.expect("the replica closes the connection");
    String::from_utf8(bytes).unwrap()
}

/// The same, while `chunk` is sent again and again.
pub async fn exchange(connection: TcpStream, chunk: &[u8], pause: Duration) -> String {
    let (mut from, mut to) = connection.into_split();
    let endless = async {
        let mut ticks = interval(pause);
        while to.write_all(chunk).await.is_ok() {
            ticks.tick().await;
        }
    };
    let mut bytes = Vec::new();
    let both = async { futures_util::join!(from.read_to_end(&mut bytes), endless) };
    let _ = timeout(CONDITION_TIMEOUT, both).await.expect("the replica closes the connection");
    String::from_utf8(bytes).unwrap()
}

fn order_head(token: &str, length: &str) -> String {
    format!(
        "POST /api/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Idempotency-Key: 0123456789abcdef\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    )
}

/// The number of responses with these labels.
pub async fn response_count(shop: &TestShop, labels: &str) -> Option<f64> {
    let line = format!("holdfast_http_request_duration_seconds_count{{{labels}}}");
    value(&metrics(shop, 0).await, &line)
}

pub fn assert_all_headers(response: &str) {
    for name in ["x-request-id", "holdfast-replica", "holdfast-strategy", "x-frame-options"] {
        assert!(response.contains(&format!("\r\n{name}: ")), "{name}: {response}");
    }
}

#[tokio::test]
async fn slow_body_is_request_timeout() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let silent = async {
        let request = order_head(&alice.token, "Content-Length: 100") + "{\"lines\":";
        read_to_end(&mut send_raw(&shop, 0, &request).await).await
    };
    let trickle = async {
        let request = order_head(&alice.token, "Transfer-Encoding: chunked");
        let connection = send_raw(&shop, 0, &request).await;
        exchange(connection, b"1\r\n \r\n", Duration::from_millis(100)).await
    };
    let (silent, trickle) = futures_util::join!(silent, trickle);
    for response in [silent, trickle] {
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
        assert!(response.contains("/problems/request-timeout"), "{response}");
        assert!(!response.contains("outcome"), "{response}");
        assert_all_headers(&response);
    }
    let labels = r#"method="POST",route="/api/orders",status="408""#;
    assert_eq!(response_count(&shop, labels).await, Some(2.0));
}

#[tokio::test]
async fn endless_body_closes_connection() {
    let shop = TestShop::start(1).await;
    for path in ["/api/items", "/healthz", "/api/nothing"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = format!("400\r\n{}\r\n", "x".repeat(1_024));
        let connection = send_raw(&shop, 0, &head).await;
        let response = exchange(connection, chunk.as_bytes(), Duration::from_millis(1)).await;
        assert!(response.starts_with("HTTP/1.1 413 "), "{path}: {response}");
        assert!(response.contains("\r\nconnection: close"), "{path}: {response}");
    }
}

/// A form that the handler reads itself does not arrive: no command was begun.
#[tokio::test]
async fn slow_upload_has_no_unknown_outcome() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let request = format!(
        "POST /lab/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\n--x\r\r\n",
        admin.token
    );
    let response = read_to_end(&mut send_raw(&shop, 0, &request).await).await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("/problems/request-timeout"), "{response}");
    assert!(!response.contains("outcome"), "{response}");
    assert_all_headers(&response);
    let labels = r#"method="POST",route="/lab/files",status="408""#;
    assert_eq!(response_count(&shop, labels).await, Some(1.0));
}

/// Rejected by its declared length, or as soon as it is too long; the rest of it never arrives.
#[tokio::test]
async fn large_upload_is_rejected_early() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let head = |length: &str| {
        format!(
            "POST /lab/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: multipart/form-data; boundary=x\r\n{length}\r\n\r\n",
            admin.token
        )
    };
    let part = "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    let declared = async {
        let request = head("Content-Length: 5000000") + part;
        read_to_end(&mut send_raw(&shop, 0, &request).await).await
    };
    let chunked = async {
        let request = format!(
            "{}{:x}\r\n{part}\r\n{:x}\r\n{}\r\n",
            head("Transfer-Encoding: chunked"),
            part.len(),
            5_000_000,
            "x".repeat(5_000_000)
        );
        read_to_end(&mut send_raw(&shop, 0, &request).await).await
    };
    let (declared, chunked) = futures_util::join!(declared, chunked);
    for response in [declared, chunked] {
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
        assert!(response.contains("/problems/payload-too-large"), "{response}");
        assert_all_headers(&response);
    }
    let labels = r#"method="POST",route="/lab/files",status="413""#;
    assert_eq!(response_count(&shop, labels).await, Some(2.0));
}
