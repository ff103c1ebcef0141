//! Requests of the lab over HTTP: one that a lesson prepares, one in flight, and its response.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_lock::clock::monotonic_us;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::cluster::begin_session;
use super::headers::{LabHeader, LabHeaders, PAUSE, TTL_MS, WAIT};
use super::run::{Lane, LaneEvent};
use super::scenario::Scenario;
use crate::load;
use crate::messages::Text;
use crate::shop::store::accounts::open_lab_account;
use crate::shop::users::LAB_NAME_PREFIX;
use crate::shop::{Sku, UserId};

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
    let line = |(sku, quantity): &(&Sku, u32)| json!({ "sku": sku, "quantity": quantity });
    json!({ "lines": lines.iter().map(line).collect::<Vec<_>>() }).to_string()
}

#[derive(Debug)]
#[must_use = "it is not sent yet"]
pub struct LessonRequest<'a> {
    lab: &'a Scenario,
    label: Text,
    replica: usize,
    path: String,
    body: String,
    headers: LabHeaders,
    token: &'a str,
    key: Uuid,
}

impl Scenario {
    /// Prepares a traced `POST` of the lab's first buyer.
    pub fn post(
        &self,
        label: impl Into<Text>,
        replica: usize,
        path: &str,
        body: &str,
        strategy: &str,
    ) -> LessonRequest<'_> {
        LessonRequest {
            lab: self,
            label: label.into(),
            replica,
            path: path.to_owned(),
            body: body.to_owned(),
            headers: LabHeaders::under(strategy),
            token: &self.cluster.buyers[0],
            key: Uuid::now_v7(),
        }
    }

    pub fn order(
        &self,
        label: impl Into<Text>,
        replica: usize,
        sku: &Sku,
        strategy: &str,
    ) -> LessonRequest<'_> {
        self.post(label, replica, "/api/orders", &order_of(&[(sku, 1)]), strategy)
    }
}

impl<'a> LessonRequest<'a> {
    pub fn with(self, header: LabHeader, value: impl ToString) -> Self {
        Self { headers: self.headers.with(header, value), ..self }
    }

    pub fn lease_ms(self, lease_ms: u64) -> Self {
        self.with(TTL_MS, lease_ms)
    }

    /// Lets the request fail at once if its lock is held.
    pub fn trying(self) -> Self {
        self.with(WAIT, "try")
    }

    pub fn by(self, token: &'a str) -> Self {
        Self { token, ..self }
    }

    pub fn with_key(self, key: Uuid) -> Self {
        Self { key, ..self }
    }

    pub fn send(self) -> InFlightRequest {
        let id = Uuid::now_v7();
        let headers = command_headers(&self.headers, id, self.key);
        let target = ("POST", self.path.as_str());
        let request = format_request("localhost", target, self.token, &headers, &self.body);
        let replica = self.lab.replica_index(self.replica);
        let address = self.lab.cluster.replicas[replica];
        let response = tokio::spawn(async move { load::send(address, &request).await });
        let lane = Lane::new(id, self.label, address.port().to_string(), monotonic_us());
        InFlightRequest { replica, lane, response }
    }

    pub async fn pause_at(self, point: &str) -> anyhow::Result<InFlightRequest> {
        let (lab, request) = (self.lab, self.with(PAUSE, point).send());
        lab.wait_until_paused(&request).await?;
        Ok(request)
    }

    /// Sends an order that must be placed. Returns the stock before it.
    pub async fn placed(self) -> anyhow::Result<i64> {
        self.response().await?.require_placed()
    }

    /// Returns its id.
    pub async fn placed_order(self) -> anyhow::Result<Uuid> {
        let response = self.response().await?;
        response.order().with_context(|| format!("not placed: {}", response.body))
    }

    pub async fn response(self) -> anyhow::Result<LabResponse> {
        self.lab.response(self.send()).await
    }
}

/// A user with money of its own, for a single run.
#[derive(Debug)]
pub struct Payer {
    pub account: UserId,
    pub token: String,
}

impl Payer {
    pub async fn create(lab: &Scenario, cents: i64) -> anyhow::Result<Self> {
        let name = format!("{LAB_NAME_PREFIX}{}", Uuid::now_v7().simple());
        let (id, token) = begin_session(&lab.cluster.pool, &name, false).await?;
        open_lab_account(&lab.cluster.pool, id, cents).await?;
        Ok(Self { account: id.lab_account(), token })
    }

    /// Places orders for one unit each, without recording them.
    pub async fn orders(
        &self,
        lab: &Scenario,
        sku: &Sku,
        count: usize,
    ) -> anyhow::Result<Vec<Uuid>> {
        let mut orders = Vec::with_capacity(count);
        for _ in 0..count {
            let order = lab.order("an order", 0, sku, "row-lock").by(&self.token);
            let order = order.send().unrecorded_response().await?;
            orders.push(order.order().context("the order failed")?);
        }
        Ok(orders)
    }

    pub fn pay<'a>(
        &'a self,
        lab: &'a Scenario,
        label: impl Into<Text>,
        replica: usize,
        order: Uuid,
        strategy: &str,
    ) -> LessonRequest<'a> {
        let path = format!("/api/orders/{order}/pay");
        lab.post(label, replica, &path, "", strategy).by(&self.token)
    }
}

#[derive(Debug)]
pub struct InFlightRequest {
    pub(super) replica: usize,
    /// Its times are those of the monotonic clock.
    pub(super) lane: Lane,
    pub(super) response: JoinHandle<std::io::Result<(u16, Vec<u8>)>>,
}

impl InFlightRequest {
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

    pub(super) fn trace(&self) -> Vec<LaneEvent> {
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
            sent_us,
            answered_us: None,
            status: None,
            problem: None,
            events: Vec::new(),
        }
    }

    /// Adds the response, with the trace, and the replica if the trace names it.
    pub(super) fn answered(mut self, response: &LabResponse, at_us: u64) -> Self {
        self.answered_us = response.status.map(|_| at_us);
        self.status = response.status;
        self.problem = response.problem().map(str::to_owned);
        if let Some(replica) = response.body.pointer("/trace/0/replica").and_then(Value::as_str) {
            replica.clone_into(&mut self.replica);
        }
        self.events.extend(response.trace());
        self.events.sort_by_key(|event| event.t_us);
        self
    }

    /// Converts times of the monotonic clock to those since `began_us`.
    pub(super) fn since(mut self, began_us: u64) -> Self {
        let times = self.events.iter_mut().map(|event| &mut event.t_us);
        for t_us in times.chain([&mut self.sent_us]).chain(&mut self.answered_us) {
            *t_us = t_us.saturating_sub(began_us);
        }
        self
    }
}

impl LaneEvent {
    pub(super) fn new(t_us: u64, event: &str) -> Self {
        Self { t_us, event: event.to_owned(), key: String::new(), value: None, fence: None }
    }
}
