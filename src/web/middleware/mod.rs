//! The parts of HTTP that handlers share: middleware, and extractors of a request's parts.

pub mod address;
pub mod admission;
pub mod auth;
pub mod body;
pub mod command_context;
pub mod connections;
pub mod cookies;
pub mod csrf;
pub mod lab_access;
pub mod parameters;
pub mod public_hosts;
pub mod rate_limits;
pub mod read_body;
pub mod request_notes;
pub mod sessions;

pub use auth::{AdminUser, LabAdmin, LabReader, SignedInUser};
pub(crate) use auth::{enter_session, find_caller};
pub use body::{FormFields, Json, OptionalJson, Query, cursor, list_query};
pub use command_context::{
    DefaultContext, begin_command, idempotency_key, lab_context, optional_idempotency_key,
};
pub use cookies::{BASKET_COOKIE, LANGUAGE_COOKIE, SESSION_COOKIE, VISITOR_COOKIE};
pub use parameters::{KeyParameters, ListParameters, OptionalKeyParameters};
