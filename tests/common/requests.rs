//! Requests that are sent in tasks, and what tests read from responses.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Shop, User};

pub fn order_body(lines: &[(&str, i64)]) -> Value {
    let line = |(sku, quantity): &(&str, i64)| json!({ "sku": sku, "quantity": quantity });
    json!({ "lines": lines.iter().map(line).collect::<Vec<_>>() })
}

/// An order under that idempotency key, not sent yet.
pub fn keyed(
    shop: &Shop,
    who: &User,
    at: usize,
    key: &str,
    sku: &str,
    many: i64,
) -> RequestBuilder {
    shop.request(who, Method::POST, at, "/api/orders")
        .header("Idempotency-Key", key)
        .json(&order_body(&[(sku, many)]))
}

pub fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

pub fn is_replayed(response: &Response) -> bool {
    response.headers().get("idempotent-replayed").is_some_and(|value| value == "true")
}

/// A request in flight.
pub type Sent = JoinHandle<reqwest::Result<Response>>;

pub fn send(request: RequestBuilder) -> Sent {
    tokio::spawn(request.send())
}

/// What a test expects of a request or its response.
pub trait Answer: Sized {
    async fn response(self) -> Response;

    /// The body of a response with that status.
    async fn gives(self, status: u16) -> Value {
        let response = self.response().await;
        let actual = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(actual, status, "{text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// The name of the problem in a response with that status.
    async fn fails(self, status: u16) -> String {
        let response = self.response().await;
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let (actual, problem, body) = response.outcome().await;
        assert_eq!((actual, &body["status"]), (status, &json!(status)), "{body}");
        problem
    }

    /// The body of a response with that status and that problem.
    async fn refuses(self, status: u16, problem: &str) -> Value {
        let response = self.response().await;
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let (actual_status, actual_problem, body) = response.outcome().await;
        assert_eq!((actual_status, actual_problem.as_str()), (status, problem), "{body}");
        body
    }

    /// The status, the name of the problem (empty if there is none), and the body.
    async fn outcome(self) -> (u16, String, Value) {
        let response = self.response().await;
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap();
        let problem = body["type"].as_str().and_then(|kind| kind.strip_prefix("/problems/"));
        (status, problem.unwrap_or_default().to_owned(), body)
    }
}

impl Answer for RequestBuilder {
    async fn response(self) -> Response {
        self.send().await.unwrap()
    }
}

impl Answer for Response {
    async fn response(self) -> Response {
        self
    }
}

impl Answer for Sent {
    async fn response(self) -> Response {
        self.await.unwrap().unwrap()
    }
}
