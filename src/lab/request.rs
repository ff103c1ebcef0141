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

pub(super) fn post(
    path: &str,
    token: &str,
    headers: &LabHeaders,
    id: Uuid,
    key: Uuid,
    body: &str,
) -> Vec<u8> {
    let headers: String = headers.lines().iter().map(|line| format!("{line}\r\n")).collect();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n{headers}X-Request-Id: {id}\r\n\
         Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
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
        let (status, body) = tokio::time::timeout(RESPONSE_TIMEOUT, self.response).await???;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(LabResponse { status: Some(status), body })
    }
}

#[derive(Debug, Clone)]
pub struct LabResponse {
    /// HTTP status; `None` if the connection broke.
    pub status: Option<u16>,
    pub body: Value,
}

impl LabResponse {
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
