//! Requests that a lesson prepares, and a user who pays.

use anyhow::Context as _;
use holdfast_lock::clock::monotonic_us;
use uuid::Uuid;

use super::cluster::begin_sessions;
use super::headers::{LabHeader, LabHeaders, PAUSE, TTL_MS, WAIT};
use super::request::{InFlightRequest, LabResponse, command_headers, format_request, order_of};
use super::run::Lane;
use super::scenario::Scenario;
use holdfast_base::messages::Text;
use holdfast_services::load;
use holdfast_shop::store::accounts::open_lab_account;
use holdfast_shop::users::LAB_NAME_PREFIX;
use holdfast_shop::{Sku, UserId};

#[derive(Debug)]
#[must_use = "it is not sent yet"]
pub struct LessonRequest<'a> {
    lab: &'a Scenario,
    label: Text,
    replica: usize,
    path: String,
    body: String,
    headers: LabHeaders,
    /// The strategy whose statements are shown beside its steps.
    strategy: Option<String>,
    lease_ms: Option<u64>,
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
            strategy: None,
            lease_ms: None,
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
        self.order_with(label, replica, &order_of(&[(sku, 1)]), strategy)
    }

    /// Prepares an order with this body.
    pub fn order_with(
        &self,
        label: impl Into<Text>,
        replica: usize,
        body: &str,
        strategy: &str,
    ) -> LessonRequest<'_> {
        let order = self.post(label, replica, "/api/orders", body, strategy);
        LessonRequest { strategy: Some(strategy.to_owned()), ..order }
    }
}

impl<'a> LessonRequest<'a> {
    pub fn with(self, header: LabHeader, value: impl ToString) -> Self {
        Self { headers: self.headers.with(header, value), ..self }
    }

    pub fn lease_ms(self, lease_ms: u64) -> Self {
        Self { lease_ms: Some(lease_ms), ..self.with(TTL_MS, lease_ms) }
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
        let scene = self.lab.current_scene();
        let lane = Lane::new(id, self.label, address.port().to_string(), monotonic_us());
        let idempotency_key = Some(self.key);
        let lane = Lane { scene, strategy: self.strategy, idempotency_key, ..lane };
        InFlightRequest { replica, lane, seen: Vec::new(), lease_ms: self.lease_ms, response }
    }

    pub async fn pause_at(self, point: &str) -> anyhow::Result<InFlightRequest> {
        let lab = self.lab;
        let mut request = self.with(PAUSE, point).send();
        lab.wait_until_paused(&mut request).await?;
        Ok(request)
    }

    /// Sends an order that must be placed. Returns the stock before it.
    pub async fn placed(self) -> anyhow::Result<i64> {
        self.response().await?.require_placed()
    }

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
        let (id, token) = begin_sessions(&lab.cluster.pool, [name], false).await?.remove(0);
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
        let pay = lab.post(label, replica, &path, "", strategy).by(&self.token);
        LessonRequest { strategy: Some(strategy.to_owned()), ..pay }
    }
}
