//! The lab: where the lock can be taken away.
//!
//! [`wishes`] are the conditions under which one request may be served. A [`run`] is a load under
//! chosen conditions, or a lesson: it is asked for with a row ([`store`]), carried out by the
//! process that owns the replicas ([`runner`]), and ends with everything restored.
//!
//! Only throw-away items and marked accounts are touched by what may break.

pub mod lessons;
pub mod run;
pub mod runner;
pub mod scheduler;
pub mod source;
pub mod store;
pub mod terminal;
pub mod wanted;
pub mod wishes;

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

pub use wishes::{Ungrantable, Wishes};
