//! The shop, from outside: HTTP against real replicas, and the database behind them.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../crates/holdfast-lock/tests/topology/mod.rs"]
mod topology;

mod audit;
mod batched;
mod batched_deaths;
mod batched_faults;
mod batched_money;
mod bounded;
mod cancelled;
mod constraints;
mod delay_queue;
mod description;
mod elsewhere;
mod fenced;
mod figures;
mod grouped;
mod history;
mod holders;
mod holds;
mod hung_up;
mod idempotency;
mod jobs;
mod jobs_replicas;
mod journey;
mod keys;
mod keys_command;
mod keys_confirmed;
mod ladder;
mod limit_changes;
mod limits;
mod limits_sign_in;
mod migrate;
mod observer;
mod overload;
mod per_customer;
mod purge;
mod queue;
mod ready;
mod refusals;
mod scheduler;
mod strategies;
mod trouble;
mod unpaid;
mod unpaid_money;
mod unpaid_replicas;
