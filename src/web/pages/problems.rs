//! What each refusal means and what to do about it: the addresses that `type` names.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;

use super::frame::Frame;
use super::html;
use super::words::pieces;
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

pub async fn list(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let frame = Frame::of(&request).await?;
    html(StatusCode::OK, &ProblemsPage { frame, kinds: Kind::ALL })
}

/// Shows one of them, or `not-found`.
pub async fn show(request: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, Problem> {
    let unknown = || Problem::new(Kind::NotFound, format!("there is no problem {name}"));
    let kind = Kind::named(&name).ok_or_else(unknown)?;
    let frame = Frame::of(&request).await?;
    let (meaning, advice) = (pieces(kind.meaning()), pieces(kind.advice()));
    html(StatusCode::OK, &ProblemPage { frame, kind, meaning, advice })
}
