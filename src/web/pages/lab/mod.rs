//! The lab's pages, while the lab is on: lessons, custom loads, results. Everybody may read them;
//! [`lab_access`](crate::web::middleware::lab_access) says which visitors may run them.

mod compare;
pub mod course;
mod hand_in;
pub mod index;
pub mod judged;
pub mod lesson;
mod picture;
mod progress;
pub mod run;
mod run_form;
pub mod saved_run;
mod traces;
mod upload;
mod views;
mod votes;

use actix_web::middleware::Compress;
use actix_web::web::{ServiceConfig, get, post};

use crate::web::routes::{back_to, back_up, get_post, resource};

/// Registers all pages of the lab. The address of a form is one segment below its page's, so that
/// signing in leads back to the page.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/lab", "GET").route(get().to(index::show)))
        .service(get_post("/lab/runs", back_to("/lab"), post().to(index::run_load)))
        .service(get_post("/lab/files", back_to("/lab"), post().to(saved_run::open)))
        .service(get_post("/lab/judged", get().to(judged::list), post().to(judged::open)))
        .service(
            resource("/lab/judged/{name}", "GET")
                .wrap(Compress::default())
                .route(get().to(judged::show)),
        )
        .service(
            // Long, repetitive lists: compressed to a fifth of the bytes. No text that an attacker
            // chooses is on the page beside the CSRF token, so the size reveals nothing about it.
            resource("/lab/runs/{id}", "GET").wrap(Compress::default()).route(get().to(run::show)),
        )
        .service(get_post("/lab/runs/{id}/hand-in", back_up(), post().to(run::hand_in)))
        .service(resource("/lab/course", "GET").route(get().to(course::show)))
        .service(resource("/lab/exercise", "GET").route(get().to(hand_in::exercise)))
        .service(
            resource("/lab/runs/{id}/picture", "GET")
                .wrap(Compress::default())
                .route(get().to(picture::show)),
        )
        .service(resource("/lab/runs/{id}/file", "GET").route(get().to(saved_run::save)))
        .service(
            resource("/lab/lessons/{name}", "GET")
                .wrap(Compress::default())
                .route(get().to(lesson::show)),
        )
        .service(get_post("/lab/lessons/{name}/answers", back_up(), post().to(lesson::answer)))
        .service(get_post("/lab/lessons/{name}/runs", back_up(), post().to(lesson::run)))
        .service(resource("/lab/lessons/{name}/votes", "GET").route(get().to(lesson::votes)));
}
