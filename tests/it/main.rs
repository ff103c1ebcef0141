//! The shop, from outside: HTTP against real replicas, and the database behind them.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../crates/holdfast-lock/tests/topology/mod.rs"]
mod topology;

mod audit;
mod barrier;
mod batched;
mod batched_crashes;
mod batched_faults;
mod batched_payments;
mod bounded_queue;
mod cancelled;
mod connections;
mod constraints;
mod customer_limit_changes;
mod customer_limits;
mod delay_queue;
mod disconnects;
mod fenced;
mod group_commit;
mod history;
mod hosts;
mod idempotency;
mod jobs;
mod jobs_replicas;
mod keys;
mod keys_command;
mod keys_confirmation;
mod ladder;
mod lock_holders;
mod metrics;
mod migrate;
mod observer;
mod openapi;
mod order_expiry;
mod order_expiry_payments;
mod order_expiry_replicas;
mod orders;
mod outages;
mod overload;
mod pause_points;
mod purge;
mod rate_limits;
mod readiness;
mod redis_topologies;
mod rejections;
mod request_ids;
mod scheduler;
mod sign_in_limits;
mod slow_clients;
mod strategies;
