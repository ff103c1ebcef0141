//! The locks without the shop, against Redis servers of their own: who gets in, who is passed over,
//! and what is left behind when everything goes wrong; on one Redis, one Valkey, a Cluster, and a
//! primary with sentinels.
//!
//! The complaints that users of other lock libraries have, and that can happen here, are tests by
//! name: [`complaints`].

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../topology/mod.rs"]
mod topology;

#[path = "../../../../tests/model/scripts.rs"]
#[expect(dead_code, reason = "the walks of tests/model use the rest")]
mod scripts;

mod complaints;
mod cut;
mod differential;
mod faults;
mod history;
mod jumps;
mod key_locks;
mod leases;
mod manners;
mod quorum;
mod server;
mod shapes;
