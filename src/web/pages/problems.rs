//! Pages that explain the problem types: the addresses that `type` names.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::frame::Frame;
use super::html;
use super::words::pieces;
use crate::web::HttpResult;
use crate::web::problems::{Kind, Problem};

#[derive(Debug, Template)]
#[template(path = "problems.html")]
struct ProblemsPage {
    frame: Frame,
    kinds: [Kind; Kind::ALL.len()],
}

#[derive(Debug, Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    kind: Kind,
    meaning: Vec<(bool, &'static str)>,
    advice: Vec<(bool, &'static str)>,
}

/// Lists all problem types.
pub async fn list(request: HttpRequest) -> HttpResult {
    let frame = Frame::of(&request).await?;
    html(StatusCode::OK, &ProblemsPage { frame, kinds: Kind::ALL })
}

/// Shows one problem type.
///
/// # Errors
/// `not-found`.
pub async fn show(request: HttpRequest, name: web::Path<String>) -> HttpResult {
    let unknown = || Problem::new(Kind::NotFound, format!("there is no problem {name}"));
    let kind = Kind::named(&name).ok_or_else(unknown)?;
    let frame = Frame::of(&request).await?;
    let (meaning, advice) = (pieces(kind.meaning()), pieces(kind.advice()));
    html(StatusCode::OK, &ProblemPage { frame, kind, meaning, advice })
}
