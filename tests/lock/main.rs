//! The locks without the shop, against Redis servers of their own: who acquires, who is skipped,
//! and what remains after faults; on one Redis, one Valkey, a Cluster, and Sentinel.
//!
//! Known issues of other lock libraries that can happen here are tests by name: [`known_issues`],
//! and [`cancelled`] for futures that are dropped.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../topology/mod.rs"]
mod topology;

#[path = "../common/cut.rs"]
mod cut;

#[path = "../model/scripts.rs"]
#[expect(dead_code, reason = "the walks of tests/model use the rest")]
mod scripts;

mod acquire_release;
mod cancelled;
mod clock_jumps;
mod differential;
mod faults;
mod history;
mod key_locks;
mod known_issues;
mod queue;
mod quorum;
mod server;
mod teaching_locks;
mod topologies;
