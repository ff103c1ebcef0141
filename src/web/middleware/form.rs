//! The fields of a submitted form.

use actix_web::error::UrlencodedError;
use actix_web::http::StatusCode;
use actix_web::web::FormConfig;
use serde::Deserialize;

use super::body::MAX_BODY_BYTES;
use crate::shop::IdempotencyKey;
use crate::web::{Problem, ProblemType};

/// The fields of a form: names and values, in the order received. Not `Debug`: one may be a
/// password.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct FormFields(pub Vec<(String, String)>);

impl FormFields {
    /// Returns the first value of a field; empty if it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    pub fn trimmed(&self, name: &str) -> &str {
        self.text(name).trim()
    }

    /// Returns all values of a field.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a field; `invalid-request` if it is absent.
    pub fn required(&self, name: &str) -> Result<&str, Problem> {
        self.all(name).next().ok_or_else(|| Problem::field(name, "it is missing"))
    }

    /// Returns the CSRF token.
    pub fn csrf(&self) -> &str {
        self.text("csrf")
    }

    /// Returns the idempotency key in a field; `invalid-request` if it is absent or invalid.
    pub fn key(&self, name: &str) -> Result<IdempotencyKey, Problem> {
        let key = self.required(name)?.to_owned();
        IdempotencyKey::try_from(key).map_err(|why| Problem::field(name, why))
    }
}

/// Bounds forms, and reports those that cannot be parsed as problems.
pub fn form_config() -> FormConfig {
    FormConfig::default()
        .limit(MAX_BODY_BYTES)
        .error_handler(|error, _| form_problem(&error).into())
}

fn form_problem(error: &UrlencodedError) -> Problem {
    match error {
        UrlencodedError::ContentType => {
            Problem::new(ProblemType::InvalidRequest, "send application/x-www-form-urlencoded")
                .status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        }
        error => Problem::unreadable_body(error),
    }
}
