//! The locks of the shop against Redis servers of their own: the teaching locks, the queue, and
//! what a cancelled future leaves behind, for every mechanism.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../../crates/holdfast-lock/tests/topology/mod.rs"]
mod topology;

#[path = "../../crates/holdfast-lock/tests/lock/server.rs"]
#[expect(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "the tests of the lock crate use the rest"
)]
mod server;

#[path = "../../crates/holdfast-lock/tests/lock/cut.rs"]
mod cut;

mod cancelled;
mod queue;
mod teaching_locks;
