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
        let paused = self.get(admin, replica, "/api/lab/paused").gives(200).await;
        let field = |paused: &Value, name: &str| paused[name].as_str().unwrap().to_owned();
        let paused = paused.as_array().unwrap().iter();
        paused
            .map(|paused| PausedRequest {
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
        let resume =
            self.request(admin, Method::POST, replica, &format!("/api/lab/paused/{request}"));
        resume.send().await.unwrap().status() == StatusCode::NO_CONTENT
    }

    pub async fn until_paused(&self, admin: &User, replica: usize, request: Uuid, point: &str) {
        until(&format!("the request is paused at {point}"), async || {
            let expected = PausedRequest { request: request.to_string(), point: point.to_owned() };
            self.paused_requests(admin, replica).await.contains(&expected)
        })
        .await;
    }
}

/// Gives the request an id, and pauses it at that point.
pub fn with_pause(request: RequestBuilder, point: &str) -> (Uuid, RequestBuilder) {
    let id = Uuid::new_v4();
    (id, request.header("X-Request-Id", id.to_string()).header("Holdfast-Pause", point))
}
