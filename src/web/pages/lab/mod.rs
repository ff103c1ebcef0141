//! The lab's pages, for admins while the lab is on: lessons, custom loads, results.

pub mod custom_load;
pub mod file;
mod forks;
pub mod index;
pub mod lesson;
pub mod run;
mod run_form;
mod scenes;
mod steps;
mod views;

use actix_web::HttpRequest;
use actix_web::middleware::Compress;
use actix_web::web::{ServiceConfig, get, post};

use super::back_to;
use crate::lab::store::{self, RunSummary};
use crate::web::middleware::auth::{SignedInUser, app_state};
use crate::web::middleware::csrf;
use crate::web::problems::{Problem, ProblemType};
use crate::web::{get_post, resource};

/// Registers all pages of the lab. The address of a form is one segment below its page's, so that
/// signing in leads back to the page.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/lab", "GET").route(get().to(index::show)))
        .service(get_post("/lab/runs", back_to("/lab"), post().to(custom_load::ask)))
        .service(get_post("/lab/files", back_to("/lab"), post().to(file::open)))
        .service(
            // Long, repetitive lists: compressed to a fifth of the bytes. No text that an attacker
            // chooses is on the page beside the CSRF token, so the size reveals nothing about it.
            resource("/lab/runs/{id}", "GET").wrap(Compress::default()).route(get().to(run::show)),
        )
        .service(resource("/lab/runs/{id}/file", "GET").route(get().to(file::save)))
        .service(
            resource("/lab/lessons/{name}", "GET")
                .wrap(Compress::default())
                .route(get().to(lesson::show)),
        )
        .service(get_post(
            "/lab/lessons/{name}/runs",
            get().to(lesson::back),
            post().to(lesson::ask),
        ));
}

async fn require_lab_admin(request: &HttpRequest) -> Result<SignedInUser, Problem> {
    require_lab(request)?;
    csrf::require_admin(request).await
}

/// Requires that the lab is on, an admin, and the CSRF token.
async fn check_lab_form(request: &HttpRequest, csrf: &str) -> Result<SignedInUser, Problem> {
    require_lab(request)?;
    csrf::check_admin_form(request, csrf).await
}

fn require_lab(request: &HttpRequest) -> Result<(), Problem> {
    if app_state(request)?.lab {
        return Ok(());
    }
    let detail = "the lab is off in this shop; one that is started with --lab on has it";
    Err(Problem::new(ProblemType::Forbidden, detail))
}

async fn stored_runs(request: &HttpRequest) -> Result<Vec<RunSummary>, Problem> {
    Ok(store::newest(&app_state(request)?.shop.pool, store::MAX_KEPT_RUNS).await?)
}
