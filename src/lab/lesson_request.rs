//! A request that a lesson prepares, and the ways to send it.

use holdfast_lock::clock::monotonic_us;
use serde_json::json;
use uuid::Uuid;

use super::headers::{LabHeader, LabHeaders, PAUSE, TTL_MS, WAIT};
use super::request::{InFlightRequest, LabResponse, command_headers, format_request};
use super::scenario::Scenario;
use crate::load;
use crate::messages::Text;
use crate::shop::Sku;

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
    /// Prepares a `POST` of the lab's first buyer, traced and under a strategy.
    pub fn post(
        &self,
        label: impl Into<Text>,
        replica: usize,
        path: &str,
        body: &str,
        strategy: &str,
    ) -> LessonRequest<'_> {
        let (label, path, body) = (label.into(), path.to_owned(), body.to_owned());
        let (headers, token, key) =
            (LabHeaders::under(strategy), &self.cluster.buyers[0], Uuid::now_v7());
        LessonRequest { lab: self, label, replica, path, body, headers, token, key }
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

    /// Replaces the session of the lab's first buyer.
    pub fn by(self, token: &'a str) -> Self {
        Self { token, ..self }
    }

    /// Sets an idempotency key that other requests of the lesson use too.
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
        let (label, sent_us, events) = (self.label, monotonic_us(), Vec::new());
        InFlightRequest { id, label, replica, sent_us, response, events }
    }

    /// Sends the request, and waits until it is paused at a probe point.
    pub async fn pause_at(self, point: &str) -> anyhow::Result<InFlightRequest> {
        let (lab, request) = (self.lab, self.with(PAUSE, point).send());
        lab.wait_until_paused(&request).await?;
        Ok(request)
    }

    /// Sends an order, and waits for its response. Returns the stock before it.
    ///
    /// # Errors
    /// If the order is not placed, which the lesson does not expect.
    pub async fn placed(self) -> anyhow::Result<i64> {
        self.response().await?.require_placed()
    }

    /// Sends the request, waits for the response, and records the request's lane.
    pub async fn response(self) -> anyhow::Result<LabResponse> {
        self.lab.response(self.send()).await
    }
}

pub(super) fn order_of(lines: &[(&Sku, u32)]) -> String {
    let line = |(sku, quantity): &(&Sku, u32)| json!({ "sku": sku, "quantity": quantity });
    json!({ "lines": lines.iter().map(line).collect::<Vec<_>>() }).to_string()
}
