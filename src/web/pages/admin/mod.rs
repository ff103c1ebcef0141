//! The pages with which admins keep the shop: items and the log of what was changed. Each form
//! executes the command that the API executes, once per key.

mod exports;
pub mod item;
mod item_form;
pub mod items;
pub mod log;
pub mod order;
pub mod orders;
pub mod sender;
pub mod shown_again;
pub mod users;

use actix_web::web::{ServiceConfig, get, post};

use crate::web::routes::{back_to, form_resource, get_post, resource};

pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/admin", "GET").route(get().to(items::list)))
        .service(get_post("/admin/items", back_to("/admin"), post().to(items::create)))
        .service(resource("/admin/items/{sku}", "GET").route(get().to(item::show)))
        .service(form_resource("/admin/items/{sku}/edit", post().to(item::edit)))
        .service(form_resource("/admin/items/{sku}/stock", post().to(item::stock)))
        .service(resource("/admin/log", "GET").route(get().to(log::show)))
        .service(resource("/admin/orders", "GET").route(get().to(orders::list)))
        .service(resource("/admin/orders/{id}", "GET").route(get().to(order::show)))
        .service(form_resource("/admin/orders/{id}/cancel", post().to(order::cancel)))
        .service(form_resource("/admin/orders/{id}/refund", post().to(order::refund)))
        .service(resource("/admin/users", "GET").route(get().to(users::list)))
        .service(resource("/admin/users/{name}", "GET").route(get().to(users::show)))
        .service(form_resource("/admin/users/{name}/disabled", post().to(users::set_disabled)))
        .service(form_resource("/admin/users/{name}/sessions", post().to(users::end_sessions)))
        .service(form_resource("/admin/users/{name}/password", post().to(users::set_password)))
        .service(resource("/admin/items.csv", "GET").route(get().to(exports::items)))
        .service(resource("/admin/orders.csv", "GET").route(get().to(exports::orders)))
        .service(resource("/admin/users.csv", "GET").route(get().to(exports::users)))
        .service(resource("/admin/log.csv", "GET").route(get().to(exports::log)))
        .service(
            resource("/admin/items/{sku}/ledger.csv", "GET").route(get().to(exports::item_ledger)),
        )
        .service(
            resource("/admin/users/{name}/ledger.csv", "GET").route(get().to(exports::user_ledger)),
        );
}
