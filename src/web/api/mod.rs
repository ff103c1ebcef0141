//! The JSON API. One file per area; each handler is described where it stands, and
//! `/api/openapi.json` is made from those descriptions.

pub mod audit;
pub mod health;
pub mod items;
pub mod jobs;
pub mod lab;
pub mod lab_runs;
pub mod me;
pub mod orders;
pub mod users;

use actix_web::web::{self, ServiceConfig};

use super::resource;

/// All addresses of the API. The router tries them in this order, those with a parameter by
/// regular expression, so the busiest come first.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(
            resource("/api/orders", "GET, POST")
                .route(web::get().to(orders::list))
                .route(web::post().to(orders::place)),
        )
        .service(resource("/api/order-tokens", "POST").route(web::post().to(orders::mint_token)))
        .service(
            resource("/api/items", "GET, POST")
                .route(web::get().to(items::list))
                .route(web::post().to(items::create)),
        )
        .service(resource("/api/lab/noop", "POST").route(web::post().to(lab::noop)))
        .service(resource("/api/orders/{id}/pay", "POST").route(web::post().to(orders::pay)))
        .service(resource("/api/items/{sku}", "GET").route(web::get().to(items::read)))
        .service(resource("/api/users", "POST").route(web::post().to(users::create)))
        .service(
            resource("/api/sessions", "POST, DELETE")
                .route(web::post().to(users::sign_in))
                .route(web::delete().to(users::sign_out)),
        )
        .service(resource("/api/items/{sku}/stock", "POST").route(web::post().to(items::restock)))
        .service(resource("/api/items/{sku}/limit", "PUT").route(web::put().to(items::limit)))
        .service(resource("/api/items/{sku}/ledger", "GET").route(web::get().to(items::ledger)))
        .service(resource("/api/items/{sku}/audit", "GET").route(web::get().to(items::audit)))
        .service(resource("/api/orders/{id}", "GET").route(web::get().to(orders::read)))
        .service(resource("/api/orders/{id}/cancel", "POST").route(web::post().to(orders::cancel)))
        .service(resource("/api/orders/{id}/refund", "POST").route(web::post().to(orders::refund)))
        .service(resource("/api/me", "GET").route(web::get().to(me::read)))
        .service(resource("/api/me/ledger", "GET").route(web::get().to(me::ledger)))
        .service(resource("/api/me/top-ups", "POST").route(web::post().to(me::top_up)))
        .service(resource("/api/locks", "GET").route(web::get().to(audit::locks)))
        .service(resource("/api/audit", "GET").route(web::get().to(audit::everything)))
        .service(resource("/api/jobs", "GET").route(web::get().to(jobs::standing)))
        .service(
            resource("/api/jobs/runs/{id}/try-again", "POST")
                .route(web::post().to(jobs::try_again)),
        )
        .service(
            resource("/api/jobs/unpaid/{id}/try-again", "POST")
                .route(web::post().to(jobs::try_unpaid_again)),
        )
        .service(resource("/api/lab/ticks", "POST").route(web::post().to(jobs::tick)))
        .service(resource("/api/lab/items", "POST").route(web::post().to(lab::create_item)))
        .service(resource("/api/lab/worker", "POST").route(web::post().to(lab::worker)))
        .service(resource("/api/lab/holds", "GET").route(web::get().to(lab::holds)))
        .service(resource("/api/lab/holds/{id}", "POST").route(web::post().to(lab::let_go)))
        .service(resource("/api/lab/queues", "GET").route(web::get().to(lab::queues)))
        .service(
            resource("/api/lab/runs", "GET, POST")
                .route(web::get().to(lab_runs::list))
                .route(web::post().to(lab_runs::ask)),
        )
        .service(resource("/api/lab/runs/{id}", "GET").route(web::get().to(lab_runs::read)))
        .service(
            resource("/api/lab/runs/{id}/events", "GET").route(web::get().to(lab_runs::follow)),
        )
        .service(resource("/healthz", "GET").route(web::get().to(health::alive)))
        .service(resource("/readyz", "GET").route(web::get().to(health::ready)))
        .service(resource("/metrics", "GET").route(web::get().to(health::metrics)));
}
