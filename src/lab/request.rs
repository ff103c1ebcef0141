//! A lesson's request in flight, and its response.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::headers::LabHeaders;
use super::run::LaneEvent;
use crate::messages::Text;

pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);

/// Formats an HTTP request of the session `token`.
pub(super) fn format_request(
    host: &str,
    target: (&str, &str),
    token: &str,
    headers: &[String],
    body: &str,
) -> Vec<u8> {
    let (method, path) = target;
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns the headers of a command: those of the lab, its request id and its idempotency key.
pub(super) fn command_headers(headers: &LabHeaders, id: Uuid, key: Uuid) -> Vec<String> {
    let mut lines = headers.lines();
    lines.push(format!("X-Request-Id: {id}"));
    lines.push(format!("Idempotency-Key: {key}"));
    lines
}

#[derive(Debug)]
pub struct InFlightRequest {
    pub id: Uuid,
    pub(super) label: Text,
    pub(super) replica: usize,
    pub(super) sent_us: u64,
    pub(super) response: JoinHandle<std::io::Result<(u16, Vec<u8>)>>,
    pub(super) events: Vec<LaneEvent>,
}

impl InFlightRequest {
    /// Waits for the response without recording a lane.
    pub(super) async fn unrecorded_response(self) -> anyhow::Result<LabResponse> {
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, self.response).await???;
        Ok(LabResponse::new(Some(response)))
    }
}

#[derive(Debug, Clone)]
pub struct LabResponse {
    /// HTTP status; `None` if the connection broke.
    pub status: Option<u16>,
    pub body: Value,
}

impl LabResponse {
    /// Reads a response, or its absence.
    pub(super) fn new(response: Option<(u16, Vec<u8>)>) -> Self {
        let body = response.as_ref().and_then(|(_, body)| serde_json::from_slice(body).ok());
        Self { status: response.map(|(status, _)| status), body: body.unwrap_or_default() }
    }

    pub fn is_success(&self) -> bool {
        matches!(self.status, Some(200 | 201))
    }

    /// Returns the item's stock before this order, from the order's ledger entry.
    pub fn stock_before(&self) -> Option<i64> {
        self.body.pointer("/lines/0/stock/before").and_then(Value::as_i64)
    }

    /// Returns the item's stock before this order.
    ///
    /// # Errors
    /// If the order was not placed, which the lesson does not expect.
    pub fn require_placed(&self) -> anyhow::Result<i64> {
        self.stock_before().with_context(|| format!("not placed: {:?} {}", self.status, self.body))
    }

    pub fn order(&self) -> Option<Uuid> {
        self.body.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok())
    }

    /// Returns the name of the problem type, for example `sold-out`; `None` if it is no problem.
    pub fn problem(&self) -> Option<&str> {
        let name = self.body.get("type").and_then(Value::as_str)?;
        name.rsplit('/').next()
    }

    /// Returns the name of the problem type, or `nothing`.
    pub fn rejection(&self) -> &str {
        self.problem().unwrap_or("nothing")
    }
}
