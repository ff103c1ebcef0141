//! Integration tests: HTTP requests to real replicas, and the database behind them.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

#[path = "../../crates/holdfast-lock/tests/lock/server.rs"]
#[expect(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "the tests of the lock crate use the rest"
)]
mod server;

mod abuse;
mod addresses;
mod admin_returns;
mod admin_users;
mod audit;
mod audit_command;
mod batched;
mod batched_crashes;
mod batched_faults;
mod batched_payments;
mod bounded_queue;
mod cancelled;
mod causes;
mod conflicting_requests;
mod connect_errors;
mod connections;
mod constraints;
mod customer_limit_changes;
mod customer_limits;
mod delegation;
mod disconnects;
mod edit_item;
mod expiry_rate;
mod fenced;
mod forgeries;
mod group_commit;
mod healthcheck;
mod history;
mod hosts;
mod idempotency;
mod jobs;
mod jobs_replicas;
mod kept_row;
mod lab_accounts;
mod lab_limits;
mod ledger_tables;
mod lock_family;
mod lock_holders;
mod locks;
mod log_reader;
mod log_volume;
mod logs;
mod malformed_requests;
mod metrics;
mod migrate;
mod names;
mod next_return;
mod openapi;
mod order_expiry;
mod order_expiry_payments;
mod order_expiry_replicas;
mod order_search;
mod orders;
mod outages;
mod overload;
mod passwords;
mod poolers;
mod pre_deduct;
mod price_changed;
mod prometheus;
mod purge;
mod race;
mod rate_limits;
mod read_only;
mod readiness;
mod redis_refusals;
mod redis_topologies;
mod rejections;
mod reports;
mod request_ids;
mod restore;
mod scheduler_game;
mod scheduler_game_ends;
mod sequences;
mod sessions;
mod shutdown;
mod sign_in_limits;
mod silence;
mod slow_clients;
mod strategies;
mod strategy_failures;
mod strategy_pairs;
mod table_ledger;
mod tls;
mod traces;
mod traces_of_locks;
mod units;
mod upgrade_requests;
mod walk;

// `server` is of the lock crate's tests, which have the topologies at this place.
use holdfast_testkit::topology;
