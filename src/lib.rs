//! Holdfast: a small web shop in which every change of stock or money is a *read, then update*
//! inside a lock, recorded in a ledger as before, delta, after; and a lab that takes the lock away.
//!
//! The program's own modules, in reading order; `docs/ARCHITECTURE.md` has those of all crates.

pub mod rate_limit;
pub mod telemetry;

pub mod web;

pub mod app;
pub mod open_files;
pub mod qr;
pub mod recorder;
pub mod redis_connection;
pub mod settings;

pub mod bench;
pub mod commands;
