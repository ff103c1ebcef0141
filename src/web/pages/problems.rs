//! Pages that explain the problem types: the addresses that `type` names.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;

use super::layout::Layout;
use super::respond::html;
use crate::messages::message;
use crate::web::problems::ProblemDefinition;
use crate::web::{HttpResult, Problem, ProblemType};

#[derive(Debug, Template)]
#[template(path = "problems.html")]
struct ProblemsPage {
    layout: Layout,
    definitions: [ProblemDefinition; ProblemType::ALL.len()],
}

#[derive(Debug, Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    layout: Layout,
    definition: ProblemDefinition,
}

pub async fn list(request: HttpRequest) -> HttpResult {
    let layout = Layout::of(&request).await?;
    let definitions = ProblemType::ALL.map(ProblemType::definition);
    html(StatusCode::OK, &ProblemsPage { layout, definitions })
}

pub async fn show(request: HttpRequest, name: Path<String>) -> HttpResult {
    let unknown = || Problem::missing(message!("problem-missing-problem", name = name.as_str()));
    let problem_type = ProblemType::named(&name).ok_or_else(unknown)?;
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &ProblemPage { layout, definition: problem_type.definition() })
}
