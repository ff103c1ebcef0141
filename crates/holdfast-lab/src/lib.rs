//! The lab: executes loads and lessons in which locks are missing or broken and processes fail.
//!
//! A [`run`] is a load or a lesson: a row requests it, the process that owns the replicas executes
//! it, and everything is restored at its end. Writes that may go wrong touch only throw-away items
//! and accounts of the lab's own users.

pub mod class;
pub mod fork_pair;
pub mod headers;
pub mod lessons;
pub mod progress;
pub mod race;
pub mod run;
pub mod runner;
pub mod scheduler_game;
pub mod source;
pub mod store;
mod stored_run;
pub mod terminal;
pub mod timeline;
pub mod validate;
pub mod what_if;

mod arm;
mod arm_spec;
mod cluster;
mod delay_queue;
mod drawing;
mod lease_watch;
mod lesson_request;
mod lock_attempts;
mod remove_hash;
mod request;
mod scenario;

pub use headers::{LabHeaderError, LabHeaders};
