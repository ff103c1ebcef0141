//! The lab: executes loads and lessons in which locks are missing or broken and processes fail.
//!
//! [`headers`] set the conditions of one request. A [`run`] is a load or a lesson: a row requests
//! it ([`store`]), the process that owns the replicas executes it ([`runner`]), and everything is
//! restored at its end.
//!
//! Writes that may go wrong touch only throw-away items and accounts of the lab's own users.
//! Tests: `tests/alone/runs.rs`, `tests/alone/lessons.rs`, `tests/it/scheduler.rs`.

pub mod headers;
pub mod interleaving;
pub mod lessons;
pub mod race;
pub mod run;
pub mod runner;
pub mod source;
pub mod store;
pub mod terminal;
pub mod timeline;
pub mod validate;

mod arm;
mod arm_spec;
mod cluster;
mod contended_value;
mod delay_queue;
mod drawing;
pub mod fork_pair;
mod payer;
mod poll;
mod raw_locks;
mod remove_hash;
mod request;
mod scenario;
mod worker;

pub use headers::{LabHeaderError, LabHeaders};
