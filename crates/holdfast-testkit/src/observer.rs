//! Clients that record their requests and responses, for the history checker.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use holdfast_checker::{self as checker, ObservedOperation, ObservedOutcome, ObservedRequest};
use holdfast_lock::clock;
use holdfast_shop::{OrderId, UserId};
use uuid::Uuid;

use crate::recorded_state;
use crate::{CONDITION_TIMEOUT, Call, TestShop, User, until};

/// Three clients, and the record of their requests.
pub struct RequestRecorder<'a> {
    pub shop: &'a TestShop,
    pub users: Vec<(User, UserId)>,
    seen: Mutex<Vec<ObservedRequest>>,
}

impl<'a> RequestRecorder<'a> {
    pub async fn of(shop: &'a TestShop) -> Self {
        let mut users = Vec::new();
        for name in ["alice", "bob", "carol"] {
            users.push((shop.promoted(name).await, shop.user_id(name).await));
        }
        Self { shop, users, seen: Mutex::default() }
    }

    /// Sends a request and waits for its response, at most for the timeout.
    pub async fn send(
        &self,
        user: usize,
        key: &str,
        operation: ObservedOperation,
        request: Call,
        timeout: Option<Duration>,
    ) -> ObservedOutcome {
        let user = self.users[user].1;
        let id = Uuid::new_v4();
        let mut request = request.key(key).header("X-Request-Id", id);
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        let invoked_us = clock::monotonic_us();
        let response = async {
            let reply = request.try_send().await.ok()?;
            let replayed = reply.is_replayed();
            Some(ObservedOutcome::parse(user, &operation, reply.status, replayed, &reply.bytes))
        };
        let outcome = response.await.unwrap_or(ObservedOutcome::Unknown);
        let completed_us = clock::monotonic_us();
        self.seen.lock().unwrap().push(ObservedRequest {
            user,
            key: key.to_owned(),
            request: Some(id),
            operation,
            invoked_us,
            completed_us,
            outcome: outcome.clone(),
        });
        outcome
    }

    pub async fn place(
        &self,
        n: usize,
        key: &str,
        lines: &[(&str, i64)],
        customize: impl FnOnce(Call) -> Call,
        timeout: Option<Duration>,
    ) -> ObservedOutcome {
        let replica = n % self.shop.replicas.len();
        let who = &self.users[n % 3].0;
        let request = who.at(replica).orders_all(lines);
        let operation = ObservedOperation::Place(
            lines.iter().map(|(sku, many)| ((*sku).to_owned(), *many)).collect(),
        );
        self.send(n % 3, key, operation, customize(request), timeout).await
    }

    pub async fn pay(&self, n: usize, order: OrderId) -> ObservedOutcome {
        let replica = (n + 1) % self.shop.replicas.len();
        let request = self.users[n % 3].0.at(replica).pays(order);
        let key = Uuid::new_v4().to_string();
        self.send(n % 3, &key, ObservedOperation::Pay(order), request, None).await
    }

    /// Sends a command that is not recorded.
    pub async fn act_unobserved(&self, n: usize, order: OrderId, what: &str) {
        let replica = n % self.shop.replicas.len();
        let status = self.users[n % 3].0.at(replica).acts(order, what).await.status;
        assert!([200, 409, 503].contains(&status), "{what}: {status}");
    }

    pub async fn history(self, skus: &[&String]) -> (checker::RecordedState, Vec<ObservedRequest>) {
        let users: Vec<UserId> = self.users.iter().map(|(_, id)| *id).collect();
        let recorded = recorded_state::read(&self.shop.pool, skus, &users).await;
        (recorded, self.seen.into_inner().unwrap())
    }

    /// Retries an order with the same key at alternating replicas until its outcome is known:
    /// placed or sold out.
    pub async fn buy(
        &self,
        n: usize,
        key: &str,
        lines: &[(&str, i64)],
        timeout: Duration,
    ) -> ObservedOutcome {
        let deadline = Instant::now() + CONDITION_TIMEOUT;
        for attempt in 0_u32.. {
            let at = n + 3 * attempt as usize;
            let outcome = self.place(at, key, lines, |it| it, Some(timeout)).await;
            if matches!(
                outcome,
                ObservedOutcome::Done { .. } | ObservedOutcome::Insufficient { .. }
            ) {
                return outcome;
            }
            assert!(Instant::now() < deadline, "order {n} has no outcome: {outcome:?}");
            tokio::time::sleep(Duration::from_millis(u64::from(20 * attempt.clamp(1, 10)))).await;
        }
        unreachable!()
    }

    pub fn count(&self, fits: impl Fn(&ObservedOutcome) -> bool) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| fits(&seen.outcome)).count()
    }

    /// Asserts consistency after the last response: no lock is held, every key placed at most one
    /// order and its client received it, the audit is sound, and the history checker finds no
    /// violation.
    /// `replica` is running.
    pub async fn assert_consistent(self, replica: usize, skus: &[&String]) {
        let shop = self.shop;
        shop.until_no_locks_are_held(replica).await;
        let mut acknowledged = BTreeMap::new();
        for seen in self.seen.lock().unwrap().iter() {
            if let (ObservedOperation::Place(_), ObservedOutcome::Done { order, .. }) =
                (&seen.operation, &seen.outcome)
            {
                let before = acknowledged.insert((seen.user.0, seen.key.clone()), order.0);
                assert!(before.is_none_or(|before| before == order.0), "{seen:?}: {before:?}");
            }
        }
        let placed: Vec<(Uuid, String, Uuid)> =
            sqlx::query_as("select user_id, token, id from orders")
                .fetch_all(&shop.pool)
                .await
                .unwrap();
        let placed: BTreeMap<_, _> =
            placed.into_iter().map(|(user, token, id)| ((user, token), id)).collect();
        assert_eq!(acknowledged, placed);
        shop.assert_sound().await;
        let (recorded, seen) = self.history(skus).await;
        let found = checker::check(&recorded, &seen);
        assert!(found.is_empty(), "{found:#?}");
    }
}

impl TestShop {
    /// Waits until no lock and no key lock is held, according to that replica.
    pub async fn until_no_locks_are_held(&self, replica: usize) {
        let admin = self.sign_in_at(replica, "admin").await;
        until("no lock is held", async || {
            admin.reads("/api/locks").await.as_array().unwrap().is_empty()
        })
        .await;
    }
}
