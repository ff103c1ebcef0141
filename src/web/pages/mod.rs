//! The pages: a Template struct and its handler each.

use actix_web::web::ServiceConfig;

/// All pages.
pub fn configure(_config: &mut ServiceConfig) {}
