//! The lab: executes loads and lessons in which locks are missing or broken and processes fail.
//!
//! [`headers`] set the conditions of one request. A [`run`] is a load or a lesson: a row requests it
//! ([`store`]), the process that owns the replicas executes it ([`runner`]), and everything is
//! restored at its end.
//!
//! Writes that may go wrong touch only throw-away items and accounts of the lab's own users.
//! Tests: `tests/runs.rs`, `tests/lessons.rs`, `tests/it/scheduler.rs`.

pub mod headers;
pub mod lessons;
pub mod run;
pub mod runner;
pub mod scheduler;
pub mod source;
pub mod store;
pub mod terminal;
pub mod wanted;

mod arm;
mod by_hand;
pub mod crowd;
pub(crate) mod drawing;
mod faults;
mod house;
mod looks;
mod request;
mod stage;
mod target;
mod worker;

pub use headers::{InvalidLabHeader, LabHeaders};
