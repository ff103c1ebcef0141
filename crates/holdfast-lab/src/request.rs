//! Requests of the lab over HTTP: how they are sent, one in flight, and its response.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_lock::LockKey;
use holdfast_lock::clock::monotonic_us;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::headers::LabHeaders;
use super::run::Lane;
use holdfast_base::messages::Text;
use holdfast_shop::Sku;
use holdfast_shop::probe::TraceEvent;
use holdfast_story::{Detail, EventKind, TimelineEvent};

pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);

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

pub(super) fn command_headers(headers: &LabHeaders, id: Uuid, key: Uuid) -> Vec<String> {
    let mut lines = headers.lines();
    lines.push(format!("X-Request-Id: {id}"));
    lines.push(format!("Idempotency-Key: {key}"));
    lines
}

pub(super) fn order_of(lines: &[(&Sku, u32)]) -> String {
    let lines = lines.iter().map(|(sku, quantity)| json!({ "sku": sku, "quantity": quantity }));
    json!({ "lines": lines.collect::<Vec<_>>() }).to_string()
}

#[derive(Debug)]
pub struct InFlightRequest {
    pub(super) replica: usize,
    /// Its times are those of the monotonic clock.
    pub(super) lane: Lane,
    /// Its trace up to its last pause, in case that its response is lost.
    pub(super) seen: Vec<TimelineEvent<()>>,
    pub(super) lease_ms: Option<u64>,
    pub(super) response: JoinHandle<std::io::Result<(u16, Vec<u8>)>>,
}

impl InFlightRequest {
    /// Returns the lane of a request whose response is lost, with what it did until its last pause.
    pub(super) fn lane_of_pause(self) -> Lane {
        let mut lane = self.lane;
        lane.events.extend(self.seen);
        lane.events.sort_by_key(|event| event.at_us);
        lane
    }

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
    pub(super) fn new(response: Option<(u16, Vec<u8>)>) -> Self {
        let body = response.as_ref().and_then(|(_, body)| serde_json::from_slice(body).ok());
        Self { status: response.map(|(status, _)| status), body: body.unwrap_or_default() }
    }

    pub fn is_success(&self) -> bool {
        matches!(self.status, Some(200 | 201))
    }

    pub fn stock_before(&self) -> Option<i64> {
        self.body.pointer("/lines/0/stock/before").and_then(Value::as_i64)
    }

    pub fn require_placed(&self) -> anyhow::Result<i64> {
        self.stock_before().with_context(|| format!("not placed: {:?} {}", self.status, self.body))
    }

    pub fn require_stock_after(&self) -> anyhow::Result<i64> {
        let after = self.body.pointer("/lines/0/stock/after").and_then(Value::as_i64);
        after.with_context(|| format!("not placed: {:?} {}", self.status, self.body))
    }

    pub fn order(&self) -> Option<Uuid> {
        self.body.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok())
    }

    /// Returns the name of the problem type, for example `sold-out`.
    pub fn problem(&self) -> Option<&str> {
        let name = self.body.get("type").and_then(Value::as_str)?;
        name.rsplit('/').next()
    }

    pub fn rejection(&self) -> &str {
        self.problem().unwrap_or("nothing")
    }

    pub(super) fn trace(&self) -> Vec<TimelineEvent<()>> {
        let trace = self.body.get("trace").cloned().unwrap_or_default();
        serde_json::from_value(trace).unwrap_or_default()
    }
}

impl Lane {
    /// Returns the lane of a request that was sent individually.
    pub(super) fn new(
        request_id: Uuid,
        label: impl Into<Text>,
        replica: impl Into<String>,
        sent_us: u64,
    ) -> Self {
        Self {
            request_id,
            label: label.into(),
            replica: replica.into(),
            arm: None,
            scene: String::new(),
            strategy: None,
            idempotency_key: None,
            sent_us,
            answered_us: None,
            status: None,
            problem: None,
            events: Vec::new(),
        }
    }

    /// Returns whether it is of an actor that sends no request.
    pub fn is_actor(&self) -> bool {
        self.request_id.is_nil()
    }

    /// Adds an event that happens now.
    pub(super) fn happens(&mut self, kind: EventKind) {
        self.happens_with(kind, None, None);
    }

    /// Adds what happens to a lock now.
    pub(super) fn happens_to(&mut self, key: &LockKey, kind: EventKind) {
        self.events.push(TimelineEvent { key: key.to_string(), ..happening(kind) });
    }

    pub(super) fn happens_with(
        &mut self,
        kind: EventKind,
        number: Option<i64>,
        fence: Option<i64>,
    ) {
        let mut event = happening(kind).with_number(number);
        event.detail.fence = fence;
        self.events.push(event);
    }

    /// Adds the response, with the trace, and the replica if the trace names it.
    pub(super) fn answered(mut self, response: &LabResponse, at_us: u64) -> Self {
        self.answered_us = response.status.map(|_| at_us);
        self.status = response.status;
        self.problem = response.problem().map(str::to_owned);
        if let Some(replica) = response.body.pointer("/trace/0/replica").and_then(Value::as_str) {
            replica.clone_into(&mut self.replica);
        }

        // Orders and payments ask for a trace, and a stored response has none.
        let lacks_trace = self.strategy.is_some() && response.body.get("trace").is_none();
        if response.is_success() && lacks_trace {
            self.events.push(TimelineEvent::new((), at_us, EventKind::Replayed));
        }
        self.events.extend(response.trace());
        self.events.sort_by_key(|event| event.at_us);
        self
    }

    /// Converts times of the monotonic clock to those since `began_us`.
    pub fn since(mut self, began_us: u64) -> Self {
        let times = self.events.iter_mut().map(|event| &mut event.at_us);
        for at_us in times.chain([&mut self.sent_us]).chain(&mut self.answered_us) {
            *at_us = at_us.saturating_sub(began_us);
        }
        self
    }
}

/// Returns an event of a trace.
pub(super) fn traced(event: TraceEvent) -> TimelineEvent<()> {
    let kind = EventKind::named(&event.event);
    let detail = Detail { fence: event.fence, ..Detail::default() };
    let traced =
        TimelineEvent { key: event.key, detail, ..TimelineEvent::new((), event.t_us, kind) };
    traced.with_number(event.value)
}

/// Returns an event that happens now.
fn happening(kind: EventKind) -> TimelineEvent<()> {
    TimelineEvent::new((), monotonic_us(), kind)
}
