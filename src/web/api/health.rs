//! Liveness, readiness and metrics. These endpoints have no rate limit.

use actix_web::HttpResponse;
use serde_json::json;

use crate::web::State;
use crate::web::readiness::ComponentCheck;

/// Reports that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "machines", security(()), responses((status = 200)))]
pub async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "ok": true }))
}

/// Reports whether Postgres and Redis respond; 503 if one does not, and the body says which.
#[utoipa::path(get, path = "/readyz", tag = "machines", security(()),
    responses((status = 200), (status = 503, description = "names the component that is unavailable")))]
pub async fn ready(state: State) -> HttpResponse {
    let ComponentCheck { postgres, redis, .. } = state.readiness.check(&state.shop).await;
    let word = |ok: bool| if ok { "ok" } else { "away" };
    let body = json!({
        "ok": postgres && redis,
        "postgres": word(postgres),
        "redis": word(redis),
        "replica": state.replica,
    });
    if postgres && redis {
        HttpResponse::Ok().json(body)
    } else {
        HttpResponse::ServiceUnavailable().insert_header(("Retry-After", "1")).json(body)
    }
}

/// Returns the metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "machines", security(()), responses((status = 200)))]
pub async fn metrics(state: State) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(state.metrics.render())
}
