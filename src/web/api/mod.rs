//! The JSON API, one file per area. `/api/openapi.json` is generated from the docs of the handlers.

pub mod admin;
pub mod admin_orders;
pub mod admin_users;
pub mod audit;
pub mod health;
pub mod items;
pub mod jobs;
pub mod lab;
pub mod lab_runs;
pub mod lists;
pub mod me;
pub mod orders;
pub mod race;
mod responses;
pub mod users;

use actix_web::web::{self, ServiceConfig, get, post};

use super::routes::{get_post, resource};

/// Registers all routes of the API. The router tries them in this order, those with a parameter by
/// regular expression, so the busiest come first.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(get_post("/api/orders", get().to(orders::list), post().to(orders::place)))
        .service(resource("/api/order-tokens", "POST").route(post().to(orders::mint_token)))
        .service(get_post("/api/items", get().to(items::list), post().to(items::create)))
        .service(resource("/api/lab/noop", "POST").route(post().to(lab::noop)))
        .service(resource("/api/orders/{id}/pay", "POST").route(post().to(orders::pay)))
        .service(
            resource("/api/items/{sku}", "GET, PATCH")
                .route(get().to(items::read))
                .route(web::patch().to(items::edit)),
        )
        .service(resource("/api/users", "POST").route(post().to(users::create)))
        .service(
            resource("/api/sessions", "GET, POST, DELETE")
                .route(get().to(users::list_sessions))
                .route(post().to(users::sign_in))
                .route(web::delete().to(users::sign_out)),
        )
        .service(resource("/api/items/{sku}/stock", "POST").route(post().to(items::restock)))
        .service(resource("/api/items/{sku}/limit", "PUT").route(web::put().to(items::limit)))
        .service(resource("/api/items/{sku}/ledger", "GET").route(get().to(items::ledger)))
        .service(resource("/api/items/{sku}/audit", "GET").route(get().to(items::audit)))
        .service(resource("/api/orders/{id}", "GET").route(get().to(orders::read)))
        .service(resource("/api/orders/{id}/cancel", "POST").route(post().to(orders::cancel)))
        .service(resource("/api/orders/{id}/refund", "POST").route(post().to(orders::refund)))
        .service(resource("/api/me", "GET").route(get().to(me::read)))
        .service(resource("/api/me/ledger", "GET").route(get().to(me::ledger)))
        .service(resource("/api/me/top-ups", "POST").route(post().to(me::top_up)))
        .service(resource("/api/me/password", "POST").route(post().to(me::change_password)))
        .service(
            resource("/api/sessions/{id}", "DELETE").route(web::delete().to(users::end_session)),
        )
        .service(resource("/api/locks", "GET").route(get().to(audit::locks)))
        .service(resource("/api/audit", "GET").route(get().to(audit::everything)))
        .service(resource("/api/jobs", "GET").route(get().to(jobs::read)))
        .service(
            resource("/api/jobs/expiry/{id}/retry", "POST").route(post().to(jobs::retry_expiry)),
        )
        .service(resource("/api/lab/ticks", "POST").route(post().to(jobs::tick)))
        .service(resource("/api/lab/items", "POST").route(post().to(lab::create_item)))
        .service(
            resource("/api/lab/items/{sku}/reconcile", "POST").route(post().to(lab::reconcile)),
        )
        .service(resource("/api/lab/worker", "POST").route(post().to(lab::worker)))
        .service(resource("/api/lab/paused", "GET").route(get().to(lab::paused)))
        .service(resource("/api/lab/paused/{id}", "POST").route(post().to(lab::resume)))
        .service(resource("/api/lab/queues", "GET").route(get().to(lab::queues)))
        .service(get_post("/api/lab/runs", get().to(lab_runs::list), post().to(lab_runs::create)))
        .service(resource("/api/lab/runs/{id}", "GET").route(get().to(lab_runs::read)))
        .service(resource("/api/lab/runs/{id}/events", "GET").route(get().to(lab_runs::follow)))
        .service(resource("/api/race", "POST").route(post().to(race::create)))
        .service(resource("/api/race/paused", "GET").route(get().to(race::paused)))
        .service(resource("/api/race/paused/{id}", "POST").route(post().to(race::resume)))
        .service(resource("/api/race/{id}", "GET").route(get().to(race::read)))
        .service(resource("/healthz", "GET").route(get().to(health::alive)))
        .service(resource("/readyz", "GET").route(get().to(health::ready)))
        .service(resource("/metrics", "GET").route(get().to(health::metrics)))
        .configure(configure_admin);
}

/// Registers what only admins read and change.
fn configure_admin(config: &mut ServiceConfig) {
    config
        .service(resource("/api/admin/items", "GET").route(get().to(admin::items)))
        .service(resource("/api/admin/log", "GET").route(get().to(admin::log)))
        .service(resource("/api/admin/orders", "GET").route(get().to(admin_orders::list_orders)))
        .service(
            resource("/api/admin/orders/{id}", "GET").route(get().to(admin_orders::read_order)),
        )
        .service(resource("/api/admin/users", "GET").route(get().to(admin_users::list_users)))
        .service(
            resource("/api/admin/users/{name}", "GET, PATCH")
                .route(get().to(admin_users::read_user))
                .route(web::patch().to(admin_users::change_user)),
        )
        .service(
            resource("/api/admin/users/{name}/end-sessions", "POST")
                .route(post().to(admin_users::end_user_sessions)),
        )
        .service(
            resource("/api/admin/users/{name}/password", "POST")
                .route(post().to(admin_users::set_user_password)),
        );
}
