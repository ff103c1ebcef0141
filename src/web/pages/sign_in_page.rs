//! The sign-in page, and a form that it carries on: one whose session had ended when it was sent.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::layout::Layout;
use super::rejection::FormErrors;
use super::respond::html;
use crate::web::HttpResult;
use crate::web::middleware::FormFields;

/// Begins the names of the form's fields on the sign-in page.
const KEPT: &str = "kept_";
/// Has the form's address there.
const ACTION: &str = "kept-form";

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub(super) struct SignInPage {
    pub layout: Layout,
    pub next: String,
    pub user: String,
    pub has_ended: bool,
    pub errors: FormErrors,
    pub demo_user: Option<String>,
    pub kept: Option<KeptForm>,
}

/// A form that was not executed, and its address.
#[derive(Debug, Clone)]
pub(super) struct KeptForm {
    pub action: String,
    /// As the sign-in page names them.
    fields: Vec<(String, String)>,
}

impl KeptForm {
    pub fn new(request: &HttpRequest, form: &FormFields) -> Self {
        let fields = form.0.iter().filter(|(name, _)| name != "csrf");
        let fields = fields.map(|(name, text)| (format!("{KEPT}{name}"), text.clone()));
        Self { action: request.path().to_owned(), fields: fields.collect() }
    }

    /// Returns the form that a sign-in page has carried on, if any.
    pub fn carried(form: &FormFields) -> Option<Self> {
        let action = form.text(ACTION).to_owned();
        let fields = form.0.iter().filter(|(name, _)| name.starts_with(KEPT)).cloned().collect();
        (!action.is_empty()).then_some(Self { action, fields })
    }

    pub fn into_fields(self) -> FormFields {
        let own = |(name, text): (String, String)| {
            name.strip_prefix(KEPT).map(|name| (name.to_owned(), text))
        };
        FormFields(self.fields.into_iter().filter_map(own).collect())
    }
}

/// Asks to sign in again, and carries on a form that was sent without a session.
pub(super) async fn page_with_form(request: &HttpRequest, form: &FormFields) -> HttpResult {
    let page = SignInPage {
        layout: Layout { path: "/sign-in".to_owned(), ..Layout::of(request).await? },
        next: String::new(),
        user: String::new(),
        has_ended: true,
        errors: FormErrors::default(),
        demo_user: None,
        kept: Some(KeptForm::new(request, form)),
    };
    html(StatusCode::UNAUTHORIZED, &page)
}
