//! The parts of HTTP that handlers share: middleware, and extractors of a request's parts.

pub mod address;
pub mod admission;
pub mod auth;
pub mod body;
pub mod csrf;
pub mod request_context;
pub mod request_options;
