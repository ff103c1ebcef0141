//! Races: two buyers, or a crowd, order a throw-away item at the same time, without signing in.
//!
//! A race is real: its orders are HTTP requests to the replicas. The replica that accepts a race
//! runs it, in bounded time; its result is a row, which every replica reads.
//! Tests: `tests/it/race.rs`, `tests/pages/race.rs`.

pub mod execute;
pub mod model;
pub mod runner;
