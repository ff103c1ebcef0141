//! The exact checker on real runs: what clients were answered by real replicas, held against the
//! ledger that they left.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use holdfast::clock;
use holdfast::shop::audit::history::{self, Asked, Observation, Outcome, Rule};
use holdfast::shop::{OrderId, Sku, UserId};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;
use uuid::Uuid;

use crate::common::{Shop, User, body};

const ORDERS: usize = 300;
const AT_ONCE: usize = 32;

/// Somebody who writes down what happens.
struct Observer<'a> {
    shop: &'a Shop,
    users: Vec<(User, UserId)>,
    seen: Mutex<Vec<Observation>>,
}

impl<'a> Observer<'a> {
    async fn of(shop: &'a Shop) -> Self {
        let mut users = Vec::new();
        for name in ["alice", "bob", "carol"] {
            let id = sqlx::query_scalar("select id from users where name = $1")
                .bind(name)
                .fetch_one(&shop.pool)
                .await
                .unwrap();
            users.push((shop.sign_in(name).await, UserId(id)));
        }
        Self { shop, users, seen: Mutex::default() }
    }

    /// Sends a request and waits for its answer, for as long as it is willing to.
    async fn ask(
        &self,
        user: usize,
        key: &str,
        asked: Asked,
        request: RequestBuilder,
        patience: Option<Duration>,
    ) -> Outcome {
        let user = self.users[user].1;
        let id = Uuid::new_v4();
        let mut request =
            request.header("Idempotency-Key", key).header("X-Request-Id", id.to_string());
        if let Some(patience) = patience {
            request = request.timeout(patience);
        }
        let invoked_us = clock::monotonic_us();
        let answer = async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            let replayed = response.headers().contains_key("idempotent-replayed");
            let body = response.bytes().await.ok()?;
            Some(Outcome::read(user, &asked, status, replayed, &body))
        };
        let outcome = answer.await.unwrap_or(Outcome::Unknown);
        let completed_us = clock::monotonic_us();
        self.seen.lock().unwrap().push(Observation {
            user,
            key: key.to_owned(),
            request: Some(id),
            asked,
            invoked_us,
            completed_us,
            outcome: outcome.clone(),
        });
        outcome
    }

    async fn place(
        &self,
        n: usize,
        key: &str,
        lines: &[(&str, i64)],
        dress: impl FnOnce(RequestBuilder) -> RequestBuilder,
        patience: Option<Duration>,
    ) -> Outcome {
        let wanted: Vec<_> =
            lines.iter().map(|(sku, many)| json!({ "sku": sku, "quantity": many })).collect();
        let replica = n % self.shop.replicas.len();
        let who = &self.users[n % 3].0;
        let request = self
            .shop
            .request(who, Method::POST, replica, "/api/orders")
            .json(&json!({ "lines": wanted }));
        let asked =
            Asked::Place(lines.iter().map(|(sku, many)| ((*sku).to_owned(), *many)).collect());
        self.ask(n % 3, key, asked, dress(request), patience).await
    }

    async fn pay(&self, n: usize, order: OrderId) -> Outcome {
        let path = format!("/api/orders/{order}/pay");
        let replica = (n + 1) % self.shop.replicas.len();
        let request = self.shop.request(&self.users[n % 3].0, Method::POST, replica, &path);
        let key = Uuid::new_v4().to_string();
        self.ask(n % 3, &key, Asked::Pay(order), request, None).await
    }

    /// Something that is done and not written down.
    async fn unobserved(&self, n: usize, order: OrderId, what: &str) {
        let path = format!("/api/orders/{order}/{what}");
        let replica = n % self.shop.replicas.len();
        let request = self.shop.request(&self.users[n % 3].0, Method::POST, replica, &path);
        let status = request.send().await.unwrap().status().as_u16();
        assert!([200, 409, 503].contains(&status), "{what}: {status}");
    }

    /// The books now, and what was seen.
    async fn history(self, skus: &[&String]) -> (history::Books, Vec<Observation>) {
        let skus: Vec<Sku> =
            skus.iter().map(|sku| Sku::try_from((*sku).clone()).unwrap()).collect();
        let users: Vec<UserId> = self.users.iter().map(|(_, id)| *id).collect();
        let pool = self.shop.pool.clone().into();
        let books = history::load(&pool, &skus, &users).await.unwrap();
        (books, self.seen.into_inner().unwrap())
    }
}

/// One customer: an order, perhaps a client without patience who asks again, perhaps a payment,
/// perhaps a change of mind.
async fn journey(observer: &Observer<'_>, n: usize, hot: &str, other: &str) {
    let key = Uuid::new_v4().to_string();
    let many = 1 + i64::try_from(n % 3).unwrap();
    let lines: &[(&str, i64)] =
        if n.is_multiple_of(4) { &[(hot, many), (other, 1)] } else { &[(hot, many)] };
    let mut outcome = Outcome::Unknown;
    if n.is_multiple_of(6) {
        let patience = Duration::from_millis(1 + n as u64 % 25);
        outcome = observer.place(n, &key, lines, |it| it, Some(patience)).await;
    }
    // Whoever has no answer asks the other replica, with the same key.
    if outcome == Outcome::Unknown {
        outcome = observer.place(n + 3, &key, lines, |it| it, None).await;
    }
    // And some ask again although they have one.
    if n < 30 || n.is_multiple_of(10) {
        observer.place(n, &key, lines, |it| it, None).await;
    }
    let Outcome::Done { order, .. } = outcome else { return };
    match n % 5 {
        0 => observer.unobserved(n, order, "cancel").await,
        1 => {
            observer.pay(n, order).await;
            observer.unobserved(n, order, "refund").await;
        }
        2 => drop(observer.pay(n, order).await),
        _ => {}
    }
}

async fn run(strategy: &str) {
    let shop = Shop::start_with(2, &[("HOLDFAST_LOCK", strategy)]).await;
    let (hot, other) = (shop.lab_item(80).await, shop.lab_item(25).await);
    let observer = Observer::of(&shop).await;
    stream::iter(0..ORDERS)
        .for_each_concurrent(AT_ONCE, |n| journey(&observer, n, &hot, &other))
        .await;
    let (books, seen) = observer.history(&[&hot, &other]).await;
    let found = history::check(&books, &seen);
    assert!(found.is_empty(), "{strategy}: {found:#?}");
    let count = |fits: fn(&Outcome) -> bool| seen.iter().filter(|o| fits(&o.outcome)).count();
    let fresh = count(|o| matches!(o, Outcome::Done { replayed: false, .. }));
    let replayed = count(|o| matches!(o, Outcome::Done { replayed: true, .. }));
    let short = count(|o| matches!(o, Outcome::Short { .. }));
    let unknown = count(|o| *o == Outcome::Unknown);
    let enough = fresh > 40 && replayed > 3 && short > 40 && unknown > 0;
    assert!(enough, "{fresh} done, {replayed} replayed, {short} short, {unknown} unknown");
    every_answer_counts(&books, &seen);
}

/// The checker would have seen it, had an answer or an entry been another.
fn every_answer_counts(books: &history::Books, seen: &[Observation]) {
    let mut forged = books.clone();
    let order = forged.stock.entries.iter().rposition(|entry| entry.reason == "order").unwrap();
    forged.stock.entries.remove(order);
    assert!(!history::check(&forged, seen).is_empty(), "an entry was dropped");
    for (place, observation) in seen.iter().enumerate() {
        let mut forged = seen.to_vec();
        match &observation.outcome {
            Outcome::Done { .. } => forged[place].outcome = Outcome::Refused,
            Outcome::Short { key, requested, available } => {
                let (key, available) = (key.clone(), available + 1_000);
                let requested = requested + 1_000;
                forged[place].outcome = Outcome::Short { key, requested, available };
            }
            Outcome::Refused | Outcome::Unknown => continue,
        }
        // A refusal in place of an answer is seen where nobody else was told of the order.
        let others = seen.iter().filter(|other| {
            other.key == observation.key && other.invoked_us != observation.invoked_us
        });
        if others.count() == 0 {
            let found = history::check(books, &forged);
            assert!(!found.is_empty(), "forged: {observation:?}");
        }
    }
}

#[tokio::test]
async fn a_run_under_fenced_is_what_its_clients_were_told() {
    run("fenced").await;
}

#[tokio::test]
async fn a_run_under_row_lock_is_what_its_clients_were_told() {
    run("row-lock").await;
}

#[tokio::test]
async fn a_run_under_atomic_is_what_its_clients_were_told() {
    run("atomic").await;
}

#[tokio::test]
async fn a_run_without_a_lock_is_not() {
    let shop = Shop::start(2).await;
    let sku = shop.lab_item(20).await;
    let observer = Observer::of(&shop).await;
    let broken = |request: RequestBuilder| {
        request.header("Holdfast-Lock", "none").header("Holdfast-Work-Ms", "20")
    };
    let orders = (0..60).map(|n| {
        let (observer, sku) = (&observer, sku.as_str());
        async move {
            let key = Uuid::new_v4().to_string();
            observer.place(n, &key, &[(sku, 1)], broken, None).await
        }
    });
    futures_util::future::join_all(orders).await;
    let (books, seen) = observer.history(&[&sku]).await;
    let found = history::check(&books, &seen);
    let rules: BTreeSet<Rule> = found.iter().map(|violation| violation.rule).collect();
    for rule in [Rule::Fork, Rule::Break, Rule::Sum, Rule::Negative] {
        assert!(rules.contains(&rule), "{rule:?} is not among {found:#?}");
    }
    // What was answered is what was written, all the same: the books are wrong, not the answers.
    assert!(!rules.contains(&Rule::Lost) && !rules.contains(&Rule::Differs), "{found:#?}");
}

#[tokio::test]
async fn restocks_by_others_fit_in() {
    let shop = Shop::start_with(2, &[("HOLDFAST_LOCK", "atomic")]).await;
    let admin = shop.sign_in("admin").await;
    let observer = Observer::of(&shop).await;
    let sku = shop.lab_item(2).await;
    let path = format!("/api/items/{sku}/stock");
    let restocks = async {
        for _ in 0..30 {
            let more = shop
                .request(&admin, Method::POST, 0, &path)
                .json(&json!({ "delta": 1, "reason": "restock" }));
            body(more.send().await.unwrap(), StatusCode::OK).await;
        }
    };
    let orders = stream::iter(0..200).for_each_concurrent(8, |n| {
        let (observer, sku) = (&observer, sku.as_str());
        async move {
            let key = Uuid::new_v4().to_string();
            observer.place(n, &key, &[(sku, 1)], |it| it, None).await;
        }
    });
    futures_util::join!(restocks, orders);
    let (books, seen) = observer.history(&[&sku]).await;
    let found = history::check(&books, &seen);
    assert!(found.is_empty(), "{found:#?}");
}
