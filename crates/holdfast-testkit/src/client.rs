//! A client with verbs: a [`User`] at a replica sends [`Call`]s, and receives [`Reply`]s.
//!
//! A verb returns a call that is not sent yet, so that a test may add a key, a strategy or a pause:
//! `alice.at(1).orders(&tea, 2).lock("fenced").await`. Awaiting it sends it; [`Call::send`] does so
//! in the background; [`Call::ok`] and [`Call::fails`] also check the reply.

use std::fmt::{self, Display};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use holdfast_shop::OrderId;
use parking_lot::RwLock;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

/// The addresses of a shop's replicas, which its users share with it.
pub type BaseUrls = Arc<RwLock<Vec<String>>>;

/// A user of a shop, whose calls go to one replica.
#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    /// The token of the session; empty without one.
    pub token: String,
    pub http: reqwest::Client,
    pub base_urls: BaseUrls,
    pub replica: usize,
}

impl User {
    /// The same user, whose calls go to that replica.
    pub fn at(&self, replica: usize) -> Self {
        Self { replica, ..self.clone() }
    }

    /// A user without a session, at the replica with that address.
    pub fn anonymous_of(base_url: &str) -> Self {
        let (name, token, http) = (String::new(), String::new(), reqwest::Client::new());
        Self { name, token, http, base_urls: BaseUrls::default(), replica: 0 }.of(base_url)
    }

    /// The same user, at the replica with that address.
    pub fn of(&self, base_url: &str) -> Self {
        let base_urls = Arc::new(RwLock::new(vec![base_url.to_owned()]));
        Self { base_urls, replica: 0, ..self.clone() }
    }

    /// The same, with the token of a session.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// Signs in; the password is the name.
    pub async fn session_of(&self, name: &str) -> Self {
        let session = self.signs_in(name, name).ok().await;
        Self { name: name.to_owned(), ..self.with_token(session["token"].as_str().unwrap()) }
    }

    /// A call without a key.
    pub fn request(&self, method: Method, path: &str) -> Call {
        let url = format!("{}{path}", self.base_urls.read()[self.replica]);
        let mut request = self.http.request(method.clone(), url);
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        let what = format!("{method} {path}");
        Call { request, replica: self.replica, key: None, status: 200, what }
    }

    pub fn get(&self, path: &str) -> Call {
        self.request(Method::GET, path)
    }

    /// A POST with a fresh key.
    pub fn post(&self, path: &str) -> Call {
        self.request(Method::POST, path).key(&fresh_key())
    }

    /// Sends a form, as a page does.
    pub fn form(&self, path: &str, fields: &'static str) -> Call {
        let form = self.request(Method::POST, path).body(fields);
        form.header("Content-Type", "application/x-www-form-urlencoded")
    }

    /// The body of a successful GET.
    pub async fn reads(&self, path: &str) -> Value {
        self.get(path).ok().await
    }

    /// An order as it is now.
    pub async fn order(&self, order: impl Into<OrderRef>) -> Value {
        self.reads(&format!("/api/orders/{}", order.into().0)).await
    }

    pub fn orders(&self, sku: &str, quantity: i64) -> Call {
        self.orders_all(&[(sku, quantity)])
    }

    /// An order of several lines.
    pub fn orders_all(&self, lines: &[(&str, i64)]) -> Call {
        let line = |(sku, quantity): &(&str, i64)| json!({ "sku": sku, "quantity": quantity });
        let lines: Vec<Value> = lines.iter().map(line).collect();
        self.post("/api/orders").json(&json!({ "lines": lines })).status(201)
    }

    /// `pay`, `cancel` or `refund`.
    pub fn acts(&self, order: impl Into<OrderRef>, action: &str) -> Call {
        self.post(&format!("/api/orders/{}/{action}", order.into().0))
    }

    pub fn pays(&self, order: impl Into<OrderRef>) -> Call {
        self.acts(order, "pay")
    }

    pub fn cancels(&self, order: impl Into<OrderRef>) -> Call {
        self.acts(order, "cancel")
    }

    pub fn refunds(&self, order: impl Into<OrderRef>) -> Call {
        self.acts(order, "refund")
    }

    pub fn tops_up(&self, cents: i64) -> Call {
        self.post("/api/me/top-ups").json(&json!({ "amount_cents": cents })).status(201)
    }

    pub fn restocks(&self, sku: &str, delta: i64) -> Call {
        let change = json!({ "delta": delta, "reason": "restock" });
        self.post(&format!("/api/items/{sku}/stock")).json(&change)
    }

    pub fn sets_limit(&self, sku: &str, limit: impl Into<Value>) -> Call {
        let limit = json!({ "limit_per_user": limit.into() });
        self.request(Method::PUT, &format!("/api/items/{sku}/limit")).json(&limit)
    }

    pub fn creates_item(&self, item: &Value) -> Call {
        self.post("/api/items").json(item).status(201)
    }

    /// Changes settings of an item.
    pub fn edits(&self, sku: &str, set: &Value) -> Call {
        self.request(Method::PATCH, &format!("/api/items/{sku}")).key(&fresh_key()).json(set)
    }

    pub fn creates_lab_item(&self, item: &Value) -> Call {
        self.post("/api/lab/items").json(item).status(201)
    }

    /// A run of the lab.
    pub fn starts_run(&self, run: &Value) -> Call {
        self.post("/api/lab/runs").json(run).status(202)
    }

    pub fn changes_password(&self, old: &str, new: &str) -> Call {
        let change = json!({ "old": old, "new": new });
        self.request(Method::POST, "/api/me/password").json(&change).status(204)
    }

    pub fn signs_in(&self, name: &str, password: &str) -> Call {
        let credentials = json!({ "user": name, "password": password });
        self.request(Method::POST, "/api/sessions").json(&credentials).status(201)
    }

    pub fn signs_up(&self, name: &str, password: &str) -> Call {
        let credentials = json!({ "user": name, "password": password });
        self.request(Method::POST, "/api/users").json(&credentials).status(201)
    }
}

/// The id of an order.
pub struct OrderRef(String);

impl From<&Value> for OrderRef {
    /// From an order as the API returns it.
    fn from(order: &Value) -> Self {
        Self(id_of(order))
    }
}

impl From<&str> for OrderRef {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl From<&String> for OrderRef {
    fn from(id: &String) -> Self {
        Self(id.clone())
    }
}

impl From<OrderId> for OrderRef {
    fn from(id: OrderId) -> Self {
        Self(id.to_string())
    }
}

/// The id of an order, a run or a session, as the API returns it.
pub fn id_of(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

/// Asserts that a JSON object has these values, among others.
#[track_caller]
pub fn assert_has(object: &Value, expected: Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&object[name], value, "{name} of {object:#}");
    }
}

/// A call that is not sent yet.
#[must_use = "a call is sent when it is awaited"]
#[derive(Debug)]
pub struct Call {
    request: RequestBuilder,
    pub replica: usize,
    key: Option<String>,
    /// The status of success.
    status: u16,
    /// The call in words, for messages: the method, the path and the headers of the lab.
    what: String,
}

impl Call {
    /// Sets the idempotency key.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    /// Sets the status that [`Self::ok`] expects.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn json(mut self, body: &Value) -> Self {
        self.request = self.request.json(body);
        self
    }

    pub fn body(mut self, body: impl Into<reqwest::Body>) -> Self {
        self.request = self.request.body(body);
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request = self.request.timeout(timeout);
        self
    }

    pub fn header(mut self, name: &str, value: impl Display) -> Self {
        let value = value.to_string();
        if name.starts_with("Holdfast-") {
            self.what += &format!(", {name}: {value}");
        }
        self.request = self.request.header(name, value);
        self
    }

    /// Sets the strategy.
    pub fn lock(self, strategy: &str) -> Self {
        self.header("Holdfast-Lock", strategy)
    }

    /// Pauses the request at a probe point.
    pub fn pause(self, point: &str) -> Self {
        self.header("Holdfast-Pause", point)
    }

    pub fn ttl_ms(self, ms: u64) -> Self {
        self.header("Holdfast-Ttl-Ms", ms)
    }

    pub fn work_ms(self, ms: u64) -> Self {
        self.header("Holdfast-Work-Ms", ms)
    }

    /// Does not wait for the lock.
    pub fn tries(self) -> Self {
        self.header("Holdfast-Wait", "try")
    }

    /// Records the probe points in the response.
    pub fn traced(self) -> Self {
        self.header("Holdfast-Trace", "on")
    }

    /// Sends it in the background.
    pub fn send(self) -> Sent {
        Sent(tokio::spawn(self.try_send()))
    }

    /// Sends it; an error is a connection that failed.
    pub async fn try_send(self) -> reqwest::Result<Reply> {
        let request = match self.key {
            Some(key) => self.request.header("Idempotency-Key", key),
            None => self.request,
        };
        let response = request.send().await?;

        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let bytes = response.bytes().await?.to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(Reply { status, headers, bytes, body, expected: self.status, what: self.what })
    }

    /// Sends it, and asserts success. Returns the body.
    pub async fn ok(self) -> Value {
        self.await.ok()
    }

    /// Sends it, and asserts that status.
    pub async fn succeeds(self, status: u16) -> Value {
        self.await.succeeds(status)
    }

    /// Sends it, and asserts that problem. Returns the body.
    pub async fn fails(self, status: u16, problem: &str) -> Value {
        self.await.fails(status, problem)
    }
}

impl Clone for Call {
    fn clone(&self) -> Self {
        Self {
            request: self.request.try_clone().expect("a body in memory"),
            replica: self.replica,
            key: self.key.clone(),
            status: self.status,
            what: self.what.clone(),
        }
    }
}

impl IntoFuture for Call {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.try_send().await.unwrap() })
    }
}

/// A call in flight. Dropping it does not cancel the call.
#[derive(Debug)]
pub struct Sent(JoinHandle<reqwest::Result<Reply>>);

impl Sent {
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Disconnects.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// The reply; an error is a connection that failed.
    pub async fn result(self) -> reqwest::Result<Reply> {
        self.0.await.unwrap()
    }

    pub async fn ok(self) -> Value {
        self.await.ok()
    }

    pub async fn succeeds(self, status: u16) -> Value {
        self.await.succeeds(status)
    }

    pub async fn fails(self, status: u16, problem: &str) -> Value {
        self.await.fails(status, problem)
    }
}

impl Future for Sent {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let result = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(result.unwrap().unwrap())
    }
}

/// A response, whole.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    /// The JSON body; null if it is none.
    pub body: Value,
    expected: u16,
    what: String,
}

impl Reply {
    /// Asserts success. Returns the body.
    #[track_caller]
    pub fn ok(self) -> Value {
        let status = self.expected;
        self.succeeds(status)
    }

    #[track_caller]
    pub fn succeeds(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self}");
        self.body
    }

    /// Asserts that problem. Returns the body.
    #[track_caller]
    pub fn fails(self, status: u16, problem: &str) -> Value {
        assert_eq!((self.status, self.problem()), (status, problem), "{self}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self}");
        assert_eq!(self.body["status"], status, "{self}");
        self.body
    }

    /// Asserts that this reply replays an earlier one: same status and bytes, marked as a replay.
    #[track_caller]
    pub fn replays(&self, first: &Self) {
        assert!(self.is_replayed(), "{self}");
        assert_eq!((self.status, self.text()), (first.status, first.text()), "{self}");
    }

    /// The name of the problem; empty if there is none.
    pub fn problem(&self) -> &str {
        let kind = self.body["type"].as_str().and_then(|kind| kind.strip_prefix("/problems/"));
        kind.unwrap_or_default()
    }

    /// The status, and the name of the problem.
    pub fn outcome(&self) -> (u16, &str) {
        (self.status, self.problem())
    }

    /// The value of a header; empty without one.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The path of the next page, from the `Link` header.
    pub fn next_page(&self) -> Option<String> {
        let link = self.headers.get("link")?.to_str().unwrap();
        Some(link.strip_prefix('<')?.strip_suffix(">; rel=\"next\"")?.to_owned())
    }

    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.what, self.status, self.text())
    }
}
