//! What all crates of Holdfast need, and what knows nothing of a shop.

pub mod backoff;
pub mod flags;
pub mod messages;
pub mod metrics;
pub mod output;
pub mod signals;
pub mod stats;
