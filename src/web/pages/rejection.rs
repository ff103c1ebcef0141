//! A rejection as a page shows it: above the page, or beside a field of its form.

use std::borrow::Cow;
use std::cell::Cell;

use actix_web::http::StatusCode;

use super::format::sentence;
use crate::web::middleware::FormFields;
use crate::web::{Problem, ProblemType};
use holdfast_base::messages::Language;
use holdfast_shop::{FieldName, IdempotencyKey, InvalidField, Rejection};

#[derive(Debug)]
pub struct RejectionNotice {
    /// Name of the problem type; `/problems/NAME` explains it.
    pub name: Option<&'static str>,
    pub title: String,
    pub detail: Option<String>,
    /// `None` if the details say all of it.
    pub meaning: Option<String>,
    pub advice: String,
    /// An address, and what is there.
    pub link: Option<(Cow<'static, str>, String)>,
}

impl RejectionNotice {
    pub fn new(problem: &Problem, language: Language) -> Self {
        let definition = problem.problem_type().definition();
        // It may exist, as another user's.
        let is_private =
            ["problem-missing-order", "problem-missing-session"].contains(&problem.detail().id());
        let is_said = !is_private
            && matches!(problem.problem_type(), ProblemType::Forbidden | ProblemType::NotFound);

        Self {
            name: Some(definition.name),
            title: definition.title(language),
            detail: Some(sentence(&problem.page_detail(language))),
            meaning: (!is_said).then(|| definition.meaning(language)),
            advice: match problem.member("outcome") {
                Some(_) => language.text("problem-unknown-outcome"),
                None => definition.page_advice(language),
            },
            link: definition.link(language).map(|(place, name)| (place.into(), name)),
        }
    }

    /// The basket of a form has changed since. The problem that a program would receive is about an
    /// idempotency key, which a person does not see.
    pub fn basket_changed(is_empty: bool, language: Language) -> Self {
        let (meaning, advice) = match is_empty {
            true => ("problem-basket-empty", "problem-basket-empty-advice"),
            false => ("problem-basket-other", "problem-basket-other-advice"),
        };
        Self {
            name: None,
            title: language.text("problem-basket-title"),
            detail: Some(language.text("problem-basket-detail")),
            meaning: Some(language.text(meaning)),
            advice: language.text(advice),
            link: is_empty.then(|| ("/orders".into(), language.text("problem-basket-link"))),
        }
    }

    fn form_unsent(unsent: &Unsent, language: Language) -> Self {
        let (ids, name) = match unsent {
            Unsent::SessionEnded => {
                (["problem-unsent-title", "problem-unsent", "problem-unsent-advice"], "")
            }
            Unsent::OpenedBy(admin) => (
                ["problem-opened-by-title", "problem-opened-by", "problem-opened-by-advice"],
                admin.as_str(),
            ),
        };
        let [title, meaning, advice] =
            ids.map(|id| language.text_with(id, &[("name", name.into())]));
        Self { name: None, title, detail: None, meaning: Some(meaning), advice, link: None }
    }

    pub fn leads_to(&self, address: &str) -> bool {
        self.link.as_ref().is_some_and(|(linked, _)| *linked == address)
    }
}

/// The errors of a submitted form: beside its fields, or as a rejection above the page.
#[derive(Debug, Default)]
pub struct FormErrors {
    fields: Vec<(FieldName, String)>,
    problem: Option<Problem>,
    /// Why a form was not executed, and only shown again with its text.
    unsent: Option<Unsent>,
    /// True once a field of the page has the focus.
    has_focus: Cell<bool>,
}

#[derive(Debug)]
enum Unsent {
    /// Its session had ended before it was sent.
    SessionEnded,
    /// Another admin, of that name, opened it.
    OpenedBy(String),
}

impl FormErrors {
    pub fn of_fields(fields: impl IntoIterator<Item = InvalidField>, language: Language) -> Self {
        let none = Self::default();
        let fields = fields.into_iter();
        fields.fold(none, |errors, (field, why)| errors.and(field, &why.text(language)))
    }

    pub fn of_rejection(rejection: Rejection, language: Language) -> Self {
        match rejection {
            Rejection::Invalid(field, why) => Self::field(field, &why.text(language)),
            other => Self { problem: Some(other.into()), ..Self::default() },
        }
    }

    pub fn field(field: impl Into<FieldName>, why: &str) -> Self {
        Self::default().and(field, why)
    }

    /// The form of a session that has ended, shown again.
    pub fn unsent() -> Self {
        Self { unsent: Some(Unsent::SessionEnded), ..Self::default() }
    }

    /// A form that another admin opened, shown again.
    pub fn opened_by(name: &str) -> Self {
        Self { unsent: Some(Unsent::OpenedBy(name.to_owned())), ..Self::default() }
    }

    /// Adds the error of a field, in the place of an earlier one of it.
    #[must_use]
    pub fn and(mut self, field: impl Into<FieldName>, why: &str) -> Self {
        let field = field.into();
        self.fields.retain(|(name, _)| *name != field);
        self.fields.push((field, sentence(why)));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.problem.is_none() && self.unsent.is_none()
    }

    /// Replaces the reason of that field's error, which is in the terms of the API.
    #[must_use]
    pub fn explain(self, field: &'static str, why: &str) -> Self {
        if self.of(field).is_some() { self.and(field, why) } else { self }
    }

    /// Returns the key for the form when it is sent again: the same, because an earlier copy may be
    /// under way; a new one for a new form, and if the key was used for something else.
    pub fn key_for(&self, form: &FormFields) -> IdempotencyKey {
        let is_used = self
            .problem
            .as_ref()
            .is_some_and(|problem| problem.problem_type() == ProblemType::IdempotencyKeyMismatch);
        let sent = form.key("key").ok().filter(|_| !is_used);
        sent.unwrap_or_else(IdempotencyKey::generate)
    }

    pub fn of(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, why)| why.as_str())
    }

    /// Returns true for the first invalid field that is rendered, in which the page opens. A notice
    /// above the form has the focus itself.
    pub fn takes_focus(&self) -> bool {
        self.problem.is_none() && self.unsent.is_none() && !self.has_focus.replace(true)
    }

    pub fn notice(&self, language: Language) -> Option<RejectionNotice> {
        match &self.problem {
            Some(problem) => Some(RejectionNotice::new(problem, language)),
            None => {
                let unsent = self.unsent.as_ref();
                unsent.map(|unsent| RejectionNotice::form_unsent(unsent, language))
            }
        }
    }

    pub fn status(&self) -> StatusCode {
        match &self.problem {
            Some(problem) => problem.code(),
            None if self.unsent.is_some() => StatusCode::FORBIDDEN,
            None if self.fields.is_empty() => StatusCode::OK,
            None => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}
