//! Who sends a form of these pages. One of a session that has ended, or that another admin opened,
//! is shown again with its texts, and is not executed: the other admin may have sent it already,
//! and a key is its sender's alone.

use actix_web::{HttpRequest, HttpResponse};

use crate::web::middleware::{FormFields, csrf, find_caller};
use crate::web::pages::layout::Layout;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::sign_in_page::page_with_form;
use crate::web::{HttpResult, Problem, ProblemType};
use holdfast_shop::sessions::Caller;
use holdfast_shop::{IdempotencyKey, UserId};

/// The field that names the admin who opened a form. The texts of a form that the sign-in page
/// carries on include it.
const OPENED_BY: &str = "opened_by";

/// A form as it is shown: new, or as it was rejected.
#[derive(Default)]
pub(in crate::web::pages) struct SentForm {
    pub fields: FormFields,
    pub errors: FormErrors,
}

impl SentForm {
    pub fn key(&self) -> IdempotencyKey {
        self.errors.key_for(&self.fields)
    }

    /// Returns the name for the field [`OPENED_BY`]: the caller's, unless the form came with one.
    pub fn opened_by(&self, layout: &Layout) -> String {
        match self.fields.text(OPENED_BY) {
            "" => layout.caller.as_ref().map_or_else(String::new, |caller| caller.name.clone()),
            name => name.to_owned(),
        }
    }

    /// Returns the form for its caller, whose it becomes: sent again, it is executed.
    fn for_caller(form: &FormFields, caller: &Caller) -> Self {
        let errors = opened_by_another(form, caller).unwrap_or_else(FormErrors::unsent);
        let mut fields = form.clone();
        fields.set(OPENED_BY, caller.name.clone());
        Self { fields, errors }
    }
}

/// Returns the admin who sends a form; otherwise the page that is shown in place of executing it:
/// the one that asks to sign in, or to an admin the form once more.
pub(super) async fn sender(
    request: &HttpRequest,
    form: &FormFields,
    show_again: impl AsyncFnOnce(SentForm) -> HttpResult,
) -> Result<Result<UserId, HttpResponse>, Problem> {
    let problem = match csrf::check_admin_form(request, form.csrf()).await {
        Ok(admin) if opened_by_another(form, &admin.caller).is_some() => {
            return show_again(SentForm::for_caller(form, &admin.caller)).await.map(Err);
        }
        Ok(admin) => return Ok(Ok(admin.caller.id)),
        Err(problem) => problem,
    };
    // Another site does not fill in forms here.
    if csrf::check_origin(request).is_err() {
        return Err(problem);
    }
    match (problem.problem_type(), find_caller(request).await?) {
        (ProblemType::Unauthenticated, _) => page_with_form(request, form).await.map(Err),
        (ProblemType::Forbidden, Some(caller)) if caller.admin => {
            show_again(SentForm::for_caller(form, &caller)).await.map(Err)
        }
        _ => Err(problem),
    }
}

/// Returns why a form is not executed that another admin opened. One without a name is of no page
/// of this shop, and is its sender's.
pub(super) fn opened_by_another(form: &FormFields, caller: &Caller) -> Option<FormErrors> {
    let name = form.text(OPENED_BY);
    let is_another = !name.is_empty() && name != caller.name;
    is_another.then(|| FormErrors::opened_by(name))
}

pub(super) async fn is_admin(request: &HttpRequest) -> Result<bool, Problem> {
    Ok(find_caller(request).await?.is_some_and(|caller| caller.admin))
}
