//! What machines ask: alive, ready, figures.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde_json::json;
use tokio::time::timeout;

use crate::shop::Error;
use crate::web::Site;

/// A probe that waits longer than this has its answer.
const PATIENCE: Duration = Duration::from_millis(1_800);

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "machines", responses((status = 200)))]
pub async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "ok": true }))
}

/// Postgres and Redis answer; 503 and which does not, otherwise.
#[utoipa::path(get, path = "/readyz", tag = "machines",
    responses((status = 200), (status = 503, description = "says which of the two is away")))]
pub async fn ready(site: web::Data<Site>) -> HttpResponse {
    // A pool that is merely busy is not a Postgres that is away.
    let postgres =
        async { matches!(site.shop.connection().await, Ok(_) | Err(Error::Overloaded(_))) };
    let redis = async { site.shop.locks.redis().ping().await.is_ok() };
    let (postgres, redis) =
        futures_util::join!(timeout(PATIENCE, postgres), timeout(PATIENCE, redis));
    let (postgres, redis) = (postgres.unwrap_or(false), redis.unwrap_or(false));
    let word = |ok: bool| if ok { "ok" } else { "away" };
    let body = json!({
        "ok": postgres && redis,
        "postgres": word(postgres),
        "redis": word(redis),
        "replica": site.replica,
    });
    if postgres && redis {
        HttpResponse::Ok().json(body)
    } else {
        HttpResponse::ServiceUnavailable().insert_header(("Retry-After", "1")).json(body)
    }
}

/// Figures for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "machines", responses((status = 200)))]
pub async fn metrics(site: web::Data<Site>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(site.metrics.render())
}
