//! Problem types (RFC 9457): a closed set, which one page explains. Their texts are in the
//! catalogue, `locales/*/problems.ftl`.

use actix_web::http::StatusCode;

use holdfast_base::messages::{Language, Message};

#[derive(Debug, Clone, Copy)]
pub struct ProblemDefinition {
    /// The last segment of the problem's `type`.
    pub name: &'static str,
    pub status: u16,
    /// Statuses that it has instead where HTTP has a more exact one.
    pub other_statuses: &'static [u16],
    pub link: Option<&'static str>,
    pub retry_after_s: Option<u64>,
}

const DEFAULTS: ProblemDefinition = ProblemDefinition {
    name: "",
    status: 500,
    other_statuses: &[],
    link: None,
    retry_after_s: None,
};

impl ProblemDefinition {
    pub fn has_status(&self, status: u16) -> bool {
        self.status == status || self.other_statuses.contains(&status)
    }

    pub fn status_list(&self) -> String {
        let others = self.other_statuses.iter().map(|status| format!(", {status}"));
        self.status.to_string() + &others.collect::<String>()
    }

    pub fn title(&self, language: Language) -> String {
        language.text(&format!("problem-{}-title", self.name))
    }

    pub fn meaning(&self, language: Language) -> String {
        language.text(&format!("problem-{}-meaning", self.name))
    }

    pub fn advice(&self, language: Language) -> String {
        language.text(&format!("problem-{}-advice", self.name))
    }

    /// Returns the next step of a person, if it differs from that of a program.
    pub fn page_advice(&self, language: Language) -> String {
        let message = Message::new(&format!("problem-{}-page-advice", self.name));
        message.format(language).unwrap_or_else(|| self.advice(language))
    }

    pub fn link(&self, language: Language) -> Option<(&'static str, String)> {
        Some((self.link?, language.text(&format!("problem-{}-link", self.name))))
    }
}

macro_rules! problem_types {
    ($($variant:ident = $name:literal, $status:literal { $($field:ident: $value:expr,)* })*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the catalogue says it, for people too")]
        pub enum ProblemType {
            $($variant,)*
        }

        impl ProblemType {
            pub const ALL: [ProblemType; [$($name),*].len()] = [$(ProblemType::$variant),*];

            pub const fn definition(self) -> ProblemDefinition {
                match self {
                    $(ProblemType::$variant => ProblemDefinition {
                        name: $name,
                        status: $status,
                        $($field: $value,)*
                        ..DEFAULTS
                    },)*
                }
            }
        }
    };
}

problem_types! {
    InvalidRequest = "invalid-request", 422 { other_statuses: &[400, 405, 415, 431], }
    Unauthenticated = "unauthenticated", 401 { link: Some("/sign-in"), }
    Forbidden = "forbidden", 403 { link: Some("/sign-in"), }
    NotFound = "not-found", 404 { link: Some("/shop"), }
    Exists = "exists", 409 {}
    SoldOut = "sold-out", 409 {}
    PriceChanged = "price-changed", 409 {}
    LimitReached = "limit-reached", 409 { link: Some("/orders"), }
    InsufficientFunds = "insufficient-funds", 402 { link: Some("/account"), }
    OrderState = "order-state", 409 {}
    OrderExpired = "order-expired", 409 { link: Some("/shop"), }
    IdempotencyKeyMissing = "idempotency-key-missing", 400 {}
    IdempotencyKeyInFlight = "idempotency-key-in-flight", 409 {}
    IdempotencyKeyMismatch = "idempotency-key-mismatch", 422 {}
    IdempotencyKeyUsed = "idempotency-key-used", 409 {}
    LockBusy = "lock-busy", 423 {}
    LockTimeout = "lock-timeout", 503 { retry_after_s: Some(1), }
    LockLost = "lock-lost", 503 { retry_after_s: Some(1), }
    Overloaded = "overloaded", 503 { retry_after_s: Some(1), }
    Unavailable = "unavailable", 503 { retry_after_s: Some(1), }
    ShuttingDown = "shutting-down", 503 { retry_after_s: Some(1), }
    TooManyRequests = "too-many-requests", 429 { retry_after_s: Some(1), }
    RequestTimeout = "request-timeout", 408 {}
    WrongHost = "wrong-host", 421 {}
    PayloadTooLarge = "payload-too-large", 413 {}
    InternalError = "internal-error", 500 {}
}

impl ProblemType {
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.definition().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|problem_type| problem_type.definition().name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_texts() {
        for problem_type in ProblemType::ALL {
            let definition = problem_type.definition();
            for language in Language::ALL {
                let link = definition.link(language).map(|(_, text)| text).unwrap_or_default();
                let texts = [definition.title(language), definition.meaning(language), link];
                for text in texts.iter().chain([&definition.advice(language)]) {
                    assert!(!text.starts_with("Unknown"), "{}: {text}", definition.name);
                }
            }
        }
    }
}
