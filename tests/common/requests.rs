//! Requests that are sent in tasks, and what tests read from responses.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Shop, User};

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
        .json(&json!({ "lines": [{ "sku": sku, "quantity": many }] }))
}

/// A new idempotency key.
pub fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

/// Returns whether the response is a replay.
pub fn is_replayed(response: &Response) -> bool {
    response.headers().get("idempotent-replayed").is_some_and(|value| value == "true")
}

/// A request in flight.
pub type Sent = JoinHandle<reqwest::Result<Response>>;

/// Sends the request in a task.
pub fn send(request: RequestBuilder) -> Sent {
    tokio::spawn(request.send())
}

/// Waits for the response.
pub async fn response_of(sent: Sent) -> Response {
    sent.await.unwrap().unwrap()
}

/// The status of a response, the name of its problem (empty if it has none), and its body.
pub async fn problem_of(response: Response) -> (u16, String, Value) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    let kind = body["type"].as_str().and_then(|kind| kind.strip_prefix("/problems/"));
    (status, kind.unwrap_or_default().to_owned(), body)
}
