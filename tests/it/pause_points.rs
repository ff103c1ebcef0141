//! Who is held at a point of the lab's, and lets whom go on.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use uuid::Uuid;

use crate::common::{Shop, User, body, until};

/// A request that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedRequest {
    pub request: String,
    pub point: String,
}

impl Shop {
    /// Everybody who is held at that replica.
    pub async fn paused_requests(&self, admin: &User, replica: usize) -> Vec<PausedRequest> {
        let holds = self.request(admin, Method::GET, replica, "/api/lab/holds");
        let holds = body(holds.send().await.unwrap(), StatusCode::OK).await;
        let word = |held: &Value, name: &str| held[name].as_str().unwrap().to_owned();
        let holds = holds.as_array().unwrap().iter();
        holds
            .map(|held| PausedRequest {
                request: word(held, "request_id"),
                point: word(held, "point"),
            })
            .collect()
    }

    /// Waits until so many requests are held at that point of replica 0.
    pub async fn until_paused_count(&self, admin: &User, many: usize, point: &str) {
        until(&format!("{many} requests are held at {point}"), async || {
            let holds = self.paused_requests(admin, 0).await;
            holds.iter().filter(|held| held.point == point).count() == many
        })
        .await;
    }

    /// Lets it go on; `false` when it is not held.
    pub async fn resume_request(&self, admin: &User, replica: usize, request: &str) -> bool {
        let go = self.request(admin, Method::POST, replica, &format!("/api/lab/holds/{request}"));
        go.send().await.unwrap().status() == StatusCode::NO_CONTENT
    }

    /// Waits until that request is held at that point.
    pub async fn until_paused(&self, admin: &User, replica: usize, request: Uuid, point: &str) {
        until(&format!("the request is held at {point}"), async || {
            let there = PausedRequest { request: request.to_string(), point: point.to_owned() };
            self.paused_requests(admin, replica).await.contains(&there)
        })
        .await;
    }
}

/// A name for the request, and the point at which it is to be held.
pub fn with_pause(request: RequestBuilder, point: &str) -> (Uuid, RequestBuilder) {
    let id = Uuid::new_v4();
    (id, request.header("X-Request-Id", id.to_string()).header("Holdfast-Pause", point))
}
