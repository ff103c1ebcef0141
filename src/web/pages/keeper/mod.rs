//! The pages with which admins keep the shop: items and the log of what was changed. Each form
//! executes the command that the API executes, once per key.

pub mod items;
pub mod log;

use actix_web::web::{ServiceConfig, get};

use crate::web::routes::resource;

pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/admin", "GET").route(get().to(items::list)))
        .service(resource("/admin/log", "GET").route(get().to(log::show)));
}
