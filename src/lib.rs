//! Holdfast: a small web shop in which every change of stock or money is a *read, then update*
//! inside a lock, recorded in a ledger as before, delta, after; and a lab that takes the lock away.
//!
//! The modules, in reading order. `tests/tidy` enforces which module may use which.

pub mod backoff;
pub mod budget;
pub mod coalesce;
pub mod flags;
pub mod load;
pub mod messages;
pub mod metrics;
pub mod output;
pub mod probe;
pub mod signals;
pub mod stats;
pub mod tasks;
pub mod tls;

pub mod locks;

pub mod db;
pub mod shop;

pub mod lock_family;
pub mod rate_limit;

pub mod jobs;

pub mod lab;

pub mod embedded;

pub mod web;

pub mod app;
pub mod commands;
pub mod recorder;
pub mod redis_connection;
pub mod settings;
pub mod telemetry;

pub mod bench;
pub mod judge;
