//! Requests that are paused at a probe point, and how a test resumes them.

use reqwest::Method;
use serde_json::Value;

use crate::{Call, Reply, Sent, TestShop, User, fresh_key, until};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseEntry {
    pub request: String,
    pub point: String,
}

impl TestShop {
    pub async fn paused_requests(&self, admin: &User, replica: usize) -> Vec<PauseEntry> {
        let paused = admin.at(replica).get("/api/lab/paused").ok().await;
        let field = |paused: &Value, name: &str| paused[name].as_str().unwrap().to_owned();
        let paused = paused.as_array().unwrap().iter();
        paused
            .map(|paused| PauseEntry {
                request: field(paused, "request_id"),
                point: field(paused, "point"),
            })
            .collect()
    }

    /// Waits until a request is paused at that point of replica 0.
    pub async fn until_one_is_paused(&self, admin: &User, point: &str) {
        until(&format!("a request is paused at {point}"), async || {
            let paused = self.paused_requests(admin, 0).await;
            paused.iter().any(|request| request.point == point)
        })
        .await;
    }

    /// Waits until `many` requests are paused at that point of replica 0.
    pub async fn until_paused_count(&self, admin: &User, many: usize, point: &str) {
        until(&format!("{many} requests are paused at {point}"), async || {
            let paused = self.paused_requests(admin, 0).await;
            paused.iter().filter(|paused| paused.point == point).count() == many
        })
        .await;
    }

    /// Resumes the request; `false` if it is not paused.
    pub async fn resume_request(&self, admin: &User, replica: usize, request: &str) -> bool {
        let resume = admin.at(replica).request(Method::POST, &format!("/api/lab/paused/{request}"));
        resume.await.status == 204
    }

    pub async fn until_paused(&self, admin: &User, replica: usize, request: &str, point: &str) {
        until(&format!("the request is paused at {point}"), async || {
            let expected = PauseEntry { request: request.to_owned(), point: point.to_owned() };
            self.paused_requests(admin, replica).await.contains(&expected)
        })
        .await;
    }
}

/// A request that is paused at a probe point.
pub struct PausedCall {
    pub id: String,
    pub replica: usize,
    pub sent: Sent,
}

impl TestShop {
    /// Sends a call, and waits until it is paused at that point.
    pub async fn pause(&self, admin: &User, call: Call, point: &str) -> PausedCall {
        let (id, replica) = (fresh_key(), call.replica);
        let sent = call.header("X-Request-Id", &id).pause(point).send();
        self.until_paused(admin, replica, &id, point).await;
        PausedCall { id, replica, sent }
    }

    /// Resumes it, again after each retry, and returns its reply.
    pub async fn resume(&self, admin: &User, paused: PausedCall) -> Reply {
        let is_paused = self.resume_request(admin, paused.replica, &paused.id).await;
        assert!(is_paused, "request {} is not paused", paused.id);

        until("the paused request has a response", async || {
            self.resume_request(admin, paused.replica, &paused.id).await;
            paused.sent.is_finished()
        })
        .await;
        paused.sent.await
    }

    /// Resumes all that are paused at replica 0.
    pub async fn resume_all(&self, admin: &User) {
        for paused in self.paused_requests(admin, 0).await {
            assert!(self.resume_request(admin, 0, &paused.request).await);
        }
    }
}
