//! Liveness, readiness and metrics. These endpoints have no rate limit.

use actix_web::HttpResponse;
use serde_json::json;

use crate::telemetry::process;
use crate::web::readiness::{ComponentCheck, PostgresState};
use crate::web::{HttpResult, Problem, ProblemType, State};
use holdfast_base::messages::message;
use holdfast_base::metrics::define_metrics;
use holdfast_shop::passwords;

define_metrics! {
    POOL_CONNECTIONS: "holdfast_pool_connections", Gauge ["state"] &[],
        "Open connections of the main pool to Postgres by state: in-use, idle";
    POOL_MAX_CONNECTIONS: "holdfast_pool_max_connections", Gauge [] &[],
        "Upper bound of the main pool's connections (HOLDFAST_POOL_SIZE)";
    PASSWORD_WAITING: "holdfast_password_hash_waiting_requests", Gauge [] &[],
        "Sign-ins and other requests that wait for a password to be hashed";
    PASSWORD_MAX_WAITING: "holdfast_password_hash_max_waiting_requests", Gauge [] &[],
        "Upper bound of these requests; one beyond it is rejected";
}

/// Reports that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "machines", security(()), responses((status = 200)))]
pub(crate) async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "ok": true }))
}

/// Reports whether Postgres is writable; otherwise 503. In the body, `redis` is `ok` if Redis does
/// what a lock does, else `away` or `refused:` with the reason, or `not needed` if the strategy has
/// no lock in Redis. Reads work without it, so the replica stays ready. A replica that shuts down
/// is not ready.
#[utoipa::path(get, path = "/readyz", tag = "machines", security(()),
    responses((status = 200), (status = 503, description = "Postgres is `away` or `read-only`; \
        or the replica is shutting down (a problem)")))]
pub(crate) async fn ready(state: State) -> HttpResult {
    if state.readiness.is_shutting_down() {
        return Err(Problem::new(ProblemType::ShuttingDown, message!("problem-replica-stops"))
            .with("ok", false)
            .with("replica", state.replica.clone()));
    }

    let ComponentCheck { postgres, redis, .. } = state.readiness.check(&state.shop).await;
    let is_ready = matches!(postgres, PostgresState::Writable | PostgresState::Waiting);
    let body = json!({
        "ok": is_ready,
        "postgres": postgres,
        "redis": redis.to_string(),
        "replica": state.replica,
    });

    Ok(if is_ready {
        HttpResponse::Ok().json(body)
    } else {
        HttpResponse::ServiceUnavailable().insert_header(("Retry-After", "1")).json(body)
    })
}

/// Returns the metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "machines", security(()), responses((status = 200)))]
pub(crate) async fn metrics(state: State) -> HttpResponse {
    process::record();
    let (in_use, idle) = state.shop.pool.connections();
    for (name, count) in [("in-use", in_use), ("idle", idle)] {
        metrics::gauge!(POOL_CONNECTIONS, "state" => name).set(count);
    }
    metrics::gauge!(POOL_MAX_CONNECTIONS).set(state.shop.pool.max_connections());
    let (waiting, max) = passwords::queue_length();
    metrics::gauge!(PASSWORD_WAITING).set(waiting as f64);
    metrics::gauge!(PASSWORD_MAX_WAITING).set(max as f64);

    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(state.metrics.render())
}
