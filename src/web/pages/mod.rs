//! The pages. Everything a shopper does works without JavaScript: a form posts, and the response
//! redirects to a page that can be reloaded. A handler that fails returns a
//! [`super::problems::Problem`]; [`error_pages`] renders it as a page for a browser.

pub mod account;
mod admin;
pub mod api_reference;
pub mod assets;
pub mod audit;
pub mod basket;
pub mod class;
pub mod csv;
pub mod error_pages;
pub mod format;
pub mod glossary;
pub mod item;
pub mod item_ledger;
pub mod jobs;
pub mod join;
pub mod judgement;
mod kept_basket;
pub mod lab;
pub(in crate::web) mod layout;
mod ledger_table;
pub(in crate::web) mod links;
pub mod order;
pub mod place_order;
pub mod race;
mod race_entries;
pub mod race_file;
mod race_film;
mod race_picture;
mod race_view;
mod rejection;
mod respond;
pub mod scheduler_game;
mod shown_prices;
pub mod sign_in;
mod sign_in_page;
mod timeline;
mod visitor;
pub mod which_lock;

use actix_web::web::{ServiceConfig, get, post};

use super::middleware::body::form_config;
use super::routes::{back_to, back_up, compressed_resource, form_resource, get_post, resource};

pub fn configure(config: &mut ServiceConfig) {
    config
        .app_data(form_config())
        .service(compressed_resource("/", get().to(race::show)))
        .service(resource("/shop", "GET").route(get().to(item::list)))
        .service(resource("/language/{tag}", "GET").route(get().to(layout::choose)))
        .service(resource("/bar", "GET").route(get().to(layout::bar)))
        .service(get_post("/basket", get().to(basket::show), post().to(basket::change)))
        .service(get_post("/basket/lines", back_to("/shop"), post().to(basket::add)))
        .service(get_post("/orders", get().to(order::list), post().to(place_order::place)))
        .service(resource("/orders/{id}", "GET").route(get().to(order::show)))
        .service(form_resource("/orders/{id}/pay", post().to(order::pay)))
        .service(form_resource("/orders/{id}/top-up", post().to(order::top_up_and_pay)))
        .service(form_resource("/orders/{id}/cancel", post().to(order::cancel)))
        .service(form_resource("/orders/{id}/refund", post().to(order::refund)))
        .service(resource("/items/{sku}", "GET").route(get().to(item::show)))
        .service(resource("/items/{sku}/ledger", "GET").route(get().to(item_ledger::show)))
        .service(resource("/account", "GET").route(get().to(account::show)))
        .service(form_resource("/account/top-ups", post().to(account::top_up)))
        .service(resource("/account/security", "GET").route(get().to(account::show_security)))
        .service(form_resource("/account/security/password", post().to(account::change_password)))
        .service(form_resource("/account/security/sessions", post().to(account::end_session)))
        .service(compressed_resource("/api/docs", get().to(api_reference::show)))
        .service(resource("/api/docs/", "GET").route(back_up()))
        .service(resource("/audit", "GET").route(get().to(audit::show)))
        .service(resource("/locks", "GET").route(get().to(audit::show_locks)))
        .service(resource("/jobs", "GET").route(get().to(jobs::show)))
        .service(get_post(
            "/jobs/unpaid/{id}/retry",
            back_to("/jobs"),
            post().to(jobs::retry_expiry),
        ))
        .service(get_post(
            "/lab/scheduler",
            get().to(scheduler_game::choose),
            post().to(scheduler_game::begin),
        ))
        .service(resource("/lab/scheduler/{id}", "GET").route(get().to(scheduler_game::show)))
        .service(form_resource("/lab/scheduler/{id}/steps", post().to(scheduler_game::step)))
        .service(form_resource("/lab/scheduler/{id}/end", post().to(scheduler_game::end)))
        .configure(configure_races)
        .configure(lab::configure)
        .configure(class::configure)
        .configure(admin::configure)
        .service(resource("/glossary", "GET").route(get().to(glossary::show)))
        .service(resource("/which-lock", "GET").route(get().to(which_lock::show)))
        .service(resource("/problems", "GET").route(get().to(error_pages::list)))
        .service(resource("/problems/{name}", "GET").route(get().to(error_pages::show)))
        .service(get_post("/sign-in", get().to(sign_in::show), post().to(sign_in::sign_in)))
        .service(get_post("/sign-up", get().to(sign_in::show_sign_up), post().to(sign_in::sign_up)))
        .service(get_post("/sign-out", back_to("/shop"), post().to(sign_in::sign_out)))
        // The format of fonts is compressed.
        .service(resource(r"/static/{name:.*\.woff2}", "GET").route(get().to(assets::serve)))
        .service(compressed_resource("/static/{name}", get().to(assets::serve)));
}

fn configure_races(config: &mut ServiceConfig) {
    config
        .service(get_post("/race", back_to("/"), post().to(race::run)))
        .service(compressed_resource("/race/{id}", get().to(race::result)))
        .service(compressed_resource("/race/{id}/file", get().to(race_file::save)))
        .service(resource("/race/{id}/film", "GET").route(get().to(race::film)))
        .service(resource("/race/{id}/picture.svg", "GET").route(get().to(race::picture)));
}
