//! What machines ask: alive, ready, figures.
//!
//! No limit counts it, so it may cost next to nothing: [`Readiness`] makes one look at Postgres and
//! Redis at a time, which takes one connection and one ping however many ask. An answer is from a
//! look that ended [`KEPT`] ago at most; so what is away is told within two seconds of being asked
//! then, and what is back is found by the next look.

use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::shop::{Error, Shop};
use crate::web::Site;

/// A probe that waits longer than this has its answer.
const PATIENCE: Duration = Duration::from_millis(1_800);
/// For so long what a look has shown is everybody's: a probe asks once a second at most.
const KEPT: Duration = Duration::from_millis(250);

/// What the last look has shown. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Option<Seen>>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    postgres: bool,
    redis: bool,
}

impl Readiness {
    /// What a look has shown just now: the last one's, or the one's that is under way, or else one
    /// of our own. It may be under way for as long as [`PATIENCE`].
    ///
    /// # Cancel safety
    /// Safe: the look goes on for those who wait for it.
    async fn seen(&self, shop: &Shop) -> Seen {
        let (kept, there) = (self.0.clone(), shop.clone());
        // By a task of its own. Whoever hangs up would else leave those behind with a look half
        // done, and let the next one begin again.
        let looking = shop.runtime.spawn(async move {
            let mut kept = kept.lock().await;
            match *kept {
                Some(seen) if seen.at.elapsed() < KEPT => seen,
                _ => *kept.insert(look(&there).await),
            }
        });
        looking.await.unwrap_or(Seen { at: Instant::now(), postgres: false, redis: false })
    }
}

async fn look(shop: &Shop) -> Seen {
    // A pool that is merely busy is not a Postgres that is away.
    let postgres = async { matches!(shop.connection().await, Ok(_) | Err(Error::Overloaded(_))) };
    let redis = async { shop.locks.redis().ping().await.is_ok() };
    let (postgres, redis) =
        futures_util::join!(timeout(PATIENCE, postgres), timeout(PATIENCE, redis));
    let (postgres, redis) = (postgres.unwrap_or(false), redis.unwrap_or(false));
    Seen { at: Instant::now(), postgres, redis }
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "machines", responses((status = 200)))]
pub async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "ok": true }))
}

/// Postgres and Redis answer; 503 and which does not, otherwise.
#[utoipa::path(get, path = "/readyz", tag = "machines",
    responses((status = 200), (status = 503, description = "says which of the two is away")))]
pub async fn ready(site: web::Data<Site>) -> HttpResponse {
    let Seen { postgres, redis, .. } = site.readiness.seen(&site.shop).await;
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
