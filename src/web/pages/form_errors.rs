//! What is wrong with a submitted form: an error beside one field, or a rejection above the page.

use actix_web::http::StatusCode;

use super::format::sentence;
use super::rejection::RejectionNotice;
use crate::shop::{FieldName, Rejection};
use crate::web::Problem;

#[derive(Debug, Default)]
pub(super) struct FormErrors {
    field: Option<(FieldName, String)>,
    problem: Option<Problem>,
}

impl From<Rejection> for FormErrors {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Invalid(field, why) => Self::field(field, &why),
            other => Self { field: None, problem: Some(other.into()) },
        }
    }
}

impl FormErrors {
    pub fn field(field: impl Into<FieldName>, why: &str) -> Self {
        Self { field: Some((field.into(), sentence(why))), problem: None }
    }

    pub fn is_empty(&self) -> bool {
        self.field.is_none() && self.problem.is_none()
    }

    /// Replaces the reason of that field's error, which is in the terms of the API.
    #[must_use]
    pub fn explain(self, field: &'static str, why: &str) -> Self {
        if self.of(field).is_some() { Self::field(field, why) } else { self }
    }

    pub fn of(&self, field: &str) -> Option<&str> {
        self.field.as_ref().filter(|(name, _)| *name == field).map(|(_, why)| why.as_str())
    }

    pub fn notice(&self) -> Option<RejectionNotice> {
        self.problem.as_ref().map(RejectionNotice::from)
    }

    pub fn status(&self) -> StatusCode {
        match (&self.problem, &self.field) {
            (Some(problem), _) => problem.code(),
            (None, Some(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            (None, None) => StatusCode::OK,
        }
    }
}
