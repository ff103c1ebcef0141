//! The timelines of a run's requests: its lanes with their events, and what each strategy sent.

mod requests;
mod statement;

pub use self::requests::{TracedRequest, timeline_of};
pub use self::statement::statement;
