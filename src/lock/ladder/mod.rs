//! The ladder: ways to keep two requests apart that people really use, one file each, all of one
//! shape. What each guarantees and when it breaks is said at its top, and shown by a lesson.

pub mod local;
pub mod owner;
pub mod quorum;
pub mod watchdog;
