//! Pages that explain the problem types: the addresses that `type` names.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::format::split_code;
use super::html;
use super::layout::Layout;
use crate::web::HttpResult;
use crate::web::problems::{Problem, ProblemType};

#[derive(Debug, Template)]
#[template(path = "problems.html")]
struct ProblemsPage {
    layout: Layout,
    problem_types: [ProblemType; ProblemType::ALL.len()],
}

#[derive(Debug, Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    layout: Layout,
    problem_type: ProblemType,
    meaning: Vec<(bool, &'static str)>,
    advice: Vec<(bool, &'static str)>,
}

/// Lists all problem types.
pub async fn list(request: HttpRequest) -> HttpResult {
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &ProblemsPage { layout, problem_types: ProblemType::ALL })
}

/// Shows one problem type.
pub async fn show(request: HttpRequest, name: web::Path<String>) -> HttpResult {
    let unknown = || Problem::not_found(format!("there is no problem {name}"));
    let problem_type = ProblemType::named(&name).ok_or_else(unknown)?;
    let layout = Layout::of(&request).await?;
    let definition = problem_type.definition();
    let (meaning, advice) = (split_code(definition.meaning), split_code(definition.advice));
    html(StatusCode::OK, &ProblemPage { layout, problem_type, meaning, advice })
}
