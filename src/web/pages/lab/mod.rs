//! The lab's pages, for admins while the lab is on: lessons, custom loads, results.

pub mod file;
pub mod free;
pub mod index;
mod knobs;
pub mod lesson;
mod microscope;
pub mod run;
mod scenes;
mod steps;
mod views;

use actix_web::HttpRequest;
use actix_web::middleware::Compress;
use actix_web::web::{ServiceConfig, get, post};

use super::{back_to, door};
use crate::lab::store::{self, RunSummary};
use crate::web::auth::{SignedIn, site};
use crate::web::problems::{Kind, Problem};
use crate::web::{get_post, resource};

/// Registers all pages of the lab. The address of a form is one segment below its page's, so that
/// signing in leads back to the page.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/lab", "GET").route(get().to(index::show)))
        .service(get_post("/lab/runs", back_to("/lab"), post().to(free::ask)))
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

async fn admin(request: &HttpRequest) -> Result<SignedIn, Problem> {
    lab_is_on(request)?;
    door::admin(request).await
}

/// Requires that the lab is on, an admin, and the CSRF token.
async fn posted(request: &HttpRequest, csrf: &str) -> Result<SignedIn, Problem> {
    lab_is_on(request)?;
    door::posted_by_admin(request, csrf).await
}

fn lab_is_on(request: &HttpRequest) -> Result<(), Problem> {
    if site(request)?.lab {
        return Ok(());
    }
    let detail = "the lab is off in this shop; one that is started with --lab on has it";
    Err(Problem::new(Kind::Forbidden, detail))
}

async fn kept(request: &HttpRequest) -> Result<Vec<RunSummary>, Problem> {
    Ok(store::newest(&site(request)?.shop.pool, store::MAX_KEPT_RUNS).await?)
}
