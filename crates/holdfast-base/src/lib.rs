//! What all crates of Holdfast need, and what knows nothing of a shop.

pub mod backoff;
pub mod flags;
pub mod glossary;
pub mod log_limit;
mod message_parts;
pub mod messages;
pub mod metrics;
pub mod output;
pub mod signals;
pub mod stats;

/// True if the compiler optimized for speed: in a release, not in the build of `script/server`.
pub const IS_FULL_BUILD: bool = matches!(env!("HOLDFAST_OPT_LEVEL").as_bytes(), [b'2' | b'3']);
