//! The parts of HTTP that handlers share: middleware, and extractors of a request's parts.

pub mod address;
pub mod auth;
pub mod body;
pub mod csrf;
pub mod enforce_rate_limits;
pub mod form;
pub mod parameters;
mod parser_errors;
pub mod query;
pub mod rate_limits;
pub mod request_context;
pub mod request_options;
pub mod sessions;

pub use auth::{AdminUser, LabAdmin, SignedInUser, find_caller};
pub use body::Json;
pub use form::FormFields;
pub use parameters::{KeyParameters, LabParameters, ListParameters, OptionalKeyParameters};
pub use query::{ListQuery, Query};
pub use request_options::{LabOptions, idempotency_key, optional_idempotency_key};
