//! Who sends a form with texts. If its session has ended, the texts are kept: the form is shown
//! again, after signing in, and is not executed.

use actix_web::{HttpRequest, HttpResponse};

use crate::web::middleware::{FormFields, csrf, find_caller};
use crate::web::pages::sign_in_page::page_with_form;
use crate::web::{Problem, ProblemType};
use holdfast_shop::UserId;

pub(super) enum Sender {
    Admin(UserId),
    /// An admin, with a form of an earlier session.
    OfEarlierSession,
    /// Nobody: the page that asks to sign in.
    SignedOut(HttpResponse),
}

pub(super) async fn sender(request: &HttpRequest, form: &FormFields) -> Result<Sender, Problem> {
    let problem = match csrf::check_admin_form(request, form.csrf()).await {
        Ok(admin) => return Ok(Sender::Admin(admin.caller.id)),
        Err(problem) => problem,
    };
    // Another site does not fill in forms here.
    if csrf::check_origin(request).is_err() {
        return Err(problem);
    }
    match problem.problem_type() {
        ProblemType::Unauthenticated => page_with_form(request, form).await.map(Sender::SignedOut),
        ProblemType::Forbidden if is_admin(request).await? => Ok(Sender::OfEarlierSession),
        _ => Err(problem),
    }
}

pub(super) async fn is_admin(request: &HttpRequest) -> Result<bool, Problem> {
    Ok(find_caller(request).await?.is_some_and(|caller| caller.admin))
}
