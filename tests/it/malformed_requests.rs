//! Malformed requests, and request heads that do not arrive: the response is a problem, and counts
//! as that of a request.

use std::time::{Duration, Instant};

use holdfast_testkit::TestShop;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::connections::{HEALTH, is_served};
use crate::slow_clients::{assert_all_headers, exchange, read_to_end, response_count, send_raw};

/// Longer than a head may take, and less than two of them.
const MAX_HEAD_TIME: Duration = Duration::from_secs(8);

/// Checks that the text is one response, a problem with all headers, and returns the problem.
fn problem_in(response: &str, status: u16) -> Value {
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    assert_all_headers(response);
    for header in ["content-type: application/problem+json", "connection: close", "date: "] {
        assert!(response.contains(&format!("\r\n{header}")), "{header}: {response}");
    }
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{response}");
    let problem: Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["status"], status, "{problem}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    problem
}

async fn unparsed_count(shop: &TestShop, status: u16) -> Option<f64> {
    let labels = format!(r#"method="other",route="(none)",status="{status}""#);
    response_count(shop, &labels).await
}

#[tokio::test]
async fn malformed_request_is_a_problem() {
    let shop = TestShop::start(1).await;
    let many = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect::<String>();
    let long = format!("X: {}\r\n", "x".repeat(300_000));
    for (head, status, detail) in [
        ("\u{1}\u{2} nonsense\r\n\r\n".to_owned(), 400, "not valid HTTP"),
        ("GET / HTTP/1.1\r\nno header\r\n\r\n".to_owned(), 400, "not valid HTTP"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431, "96 headers"),
        (format!("GET / HTTP/1.1\r\n{long}\r\n"), 431, "128 KiB"),
    ] {
        let response = read_to_end(&mut send_raw(&shop, 0, &head).await).await;
        let problem = problem_in(&response, status);
        assert_eq!(problem["type"], "/problems/invalid-request");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    assert_eq!(unparsed_count(&shop, 400).await, Some(2.0));
    assert_eq!(unparsed_count(&shop, 431).await, Some(2.0));
}

#[tokio::test]
async fn pipelined_requests_precede_the_problem() {
    let shop = TestShop::start(1).await;
    let requests = HEALTH.repeat(30) + "nonsense\r\n\r\n";
    let responses = read_to_end(&mut send_raw(&shop, 0, &requests).await).await;
    let (served, _) = responses.rsplit_once("HTTP/1.1 ").unwrap();
    assert_eq!(served.matches("HTTP/1.1 200 ").count(), 30, "{responses}");
    problem_in(&responses[served.len()..], 400);
    assert_eq!(unparsed_count(&shop, 400).await, Some(1.0));
}

#[tokio::test]
async fn every_slow_head_is_request_timeout() {
    let shop = TestShop::start(1).await;
    let began = Instant::now();
    let silent = async { read_to_end(&mut send_raw(&shop, 0, "GET /heal").await).await };
    let trickled = async {
        let connection = send_raw(&shop, 0, "GET /healthz HTTP/1.1\r\nX: ").await;
        exchange(connection, b"x", Duration::from_millis(300)).await
    };
    // A later head has the same time as the first one.
    let second = async {
        let mut connection = send_raw(&shop, 0, "").await;
        assert!(is_served(&mut connection).await);
        connection.write_all(b"GET /heal").await.unwrap();
        read_to_end(&mut connection).await
    };
    let second_trickled = async {
        let mut connection = send_raw(&shop, 0, "").await;
        assert!(is_served(&mut connection).await);
        connection.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
        exchange(connection, b"x", Duration::from_millis(300)).await
    };
    let (silent, trickled, second, second_trickled) =
        futures_util::join!(silent, trickled, second, second_trickled);
    for response in [silent, trickled, second, second_trickled] {
        let problem = problem_in(&response, 408);
        assert_eq!(problem["type"], "/problems/request-timeout");
    }
    assert!(began.elapsed() < MAX_HEAD_TIME, "{:?}", began.elapsed());
    assert_eq!(unparsed_count(&shop, 408).await, Some(4.0));
}

/// Also with a part of the next head that arrived with the previous request.
#[tokio::test]
async fn idle_connection_is_closed_silently() {
    let shop = TestShop::start(1).await;
    let began = Instant::now();
    let idle = async {
        let mut connection = send_raw(&shop, 0, HEALTH).await;
        read_to_end(&mut connection).await
    };
    let early = async {
        let mut connection = send_raw(&shop, 0, &format!("{HEALTH}GET /heal")).await;
        read_to_end(&mut connection).await
    };
    let unused = async { read_to_end(&mut send_raw(&shop, 0, "").await).await };
    let (idle, early, unused) = futures_util::join!(idle, early, unused);
    for responses in [idle, early] {
        assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{responses}");
    }
    assert_eq!(unused, "");
    assert!(began.elapsed() < MAX_HEAD_TIME, "{:?}", began.elapsed());
}
