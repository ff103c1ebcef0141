//! Requests that are paused at a probe point, and how a test resumes them.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use uuid::Uuid;

use crate::common::requests::Answer as _;
use crate::common::{Shop, User, until};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedRequest {
    pub request: String,
    pub point: String,
}

impl Shop {
    pub async fn paused_requests(&self, admin: &User, replica: usize) -> Vec<PausedRequest> {
        let holds = self.get(admin, replica, "/api/lab/paused").gives(200).await;
        let word = |held: &Value, name: &str| held[name].as_str().unwrap().to_owned();
        let holds = holds.as_array().unwrap().iter();
        holds
            .map(|held| PausedRequest {
                request: word(held, "request_id"),
                point: word(held, "point"),
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
        until(&format!("{many} requests are held at {point}"), async || {
            let holds = self.paused_requests(admin, 0).await;
            holds.iter().filter(|held| held.point == point).count() == many
        })
        .await;
    }

    /// Resumes the request; `false` if it is not paused.
    pub async fn resume_request(&self, admin: &User, replica: usize, request: &str) -> bool {
        let go = self.request(admin, Method::POST, replica, &format!("/api/lab/paused/{request}"));
        go.send().await.unwrap().status() == StatusCode::NO_CONTENT
    }

    pub async fn until_paused(&self, admin: &User, replica: usize, request: Uuid, point: &str) {
        until(&format!("the request is held at {point}"), async || {
            let there = PausedRequest { request: request.to_string(), point: point.to_owned() };
            self.paused_requests(admin, replica).await.contains(&there)
        })
        .await;
    }
}

/// Gives the request an id, and pauses it at that point.
pub fn with_pause(request: RequestBuilder, point: &str) -> (Uuid, RequestBuilder) {
    let id = Uuid::new_v4();
    (id, request.header("X-Request-Id", id.to_string()).header("Holdfast-Pause", point))
}
