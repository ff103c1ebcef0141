//! Holdfast: a small web shop whose every change of stock or money is a *read, then update* inside
//! a lock, written to a ledger as before, delta, after; and a lab in which the lock can be taken
//! away.
//!
//! The modules, in reading order. Each may use the ones above it; `tests/tidy.rs` holds the table.

pub mod clock;
pub mod load;
pub mod output;
pub mod probe;

pub mod lock;

pub mod db;
pub mod shop;

pub mod limits;

pub mod jobs;

pub mod lab;

pub mod embedded;

pub mod web;

pub mod app;
pub mod config;

pub mod bench;
