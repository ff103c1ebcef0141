//! The shop, from outside: HTTP against real replicas, and the database behind them.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../topology/mod.rs"]
mod topology;

mod audit;
mod batched;
mod batched_deaths;
mod batched_early;
mod batched_faults;
mod batched_money;
mod cancelled;
mod description;
mod elsewhere;
mod fenced;
mod figures;
mod history;
mod holders;
mod idempotency;
mod journey;
mod ladder;
mod limits;
mod limits_sign_in;
mod observer;
mod overload;
mod queue;
mod refusals;
mod scheduler;
mod strategies;
mod trouble;
