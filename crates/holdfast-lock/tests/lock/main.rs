//! The locks without the shop, on Redis servers of their own: who acquires, who is skipped, and
//! what is left after each failure; on one Redis, one Valkey, a Cluster, and a primary with
//! sentinels. [`known_issues`] has a test for each known issue of other lock libraries that applies
//! here.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

#[path = "../topology/mod.rs"]
mod topology;

#[path = "../../../../tests/model/scripts.rs"]
#[expect(dead_code, reason = "tests/model uses the rest")]
mod scripts;

mod acquire_release;
mod cut;
mod differential;
mod errors;
mod events;
mod faults;
mod history;
mod idempotency_locks;
mod known_issues;
mod leases;
mod logins;
mod probe;
mod quorum;
mod robustness;
mod server;
mod sharded;
mod tls;
mod topologies;
