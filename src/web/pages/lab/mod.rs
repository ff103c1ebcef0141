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
mod runs;
pub mod saved_run;
mod traces;
mod upload;
mod views;
mod votes;

use actix_web::web::{ServiceConfig, get, post};

use crate::web::routes::{back_to, compressed_resource, form_resource, get_post, resource};

/// Registers all pages of the lab. The address of a form is one segment below its page's, so that
/// signing in leads back to the page; `error_pages` knows the page of loads and files.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/lab", "GET").route(get().to(index::show)))
        .service(get_post("/lab/runs", get().to(runs::show), post().to(runs::run_load)))
        .service(get_post("/lab/files", back_to("/lab/runs"), post().to(saved_run::open)))
        .service(get_post("/lab/judged", get().to(judged::list), post().to(judged::open)))
        .service(compressed_resource("/lab/judged/{name}", get().to(judged::show)))
        // Long, repetitive lists: compressed to a fifth of the bytes. No text that an attacker
        // chooses is on the page beside the CSRF token, so the size reveals nothing about it.
        .service(compressed_resource("/lab/runs/{id}", get().to(run::show)))
        .service(form_resource("/lab/runs/{id}/hand-in", post().to(run::hand_in)))
        .service(resource("/lab/course", "GET").route(get().to(course::show)))
        .service(resource("/lab/exercise", "GET").route(get().to(hand_in::exercise)))
        .service(compressed_resource("/lab/runs/{id}/picture", get().to(picture::show)))
        .service(resource("/lab/runs/{id}/file", "GET").route(get().to(saved_run::save)))
        .service(compressed_resource("/lab/lessons/{name}", get().to(lesson::show)))
        .service(form_resource("/lab/lessons/{name}/answers", post().to(lesson::answer)))
        .service(form_resource("/lab/lessons/{name}/show-answers", post().to(lesson::show_votes)))
        .service(form_resource("/lab/lessons/{name}/runs", post().to(lesson::run)))
        .service(resource("/lab/lessons/{name}/votes", "GET").route(get().to(lesson::votes)));
}
