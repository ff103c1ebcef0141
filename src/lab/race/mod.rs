//! Races: two buyers, or a crowd, order a throw-away item at the same time, without signing in.
//!
//! A race is real: its orders are HTTP requests to the replicas, with the trace of the probe. The
//! replica that accepts a race runs it, within [`execute::RACE_TIMEOUT`]; [`runner::RaceRunner`]
//! bounds how many run and wait. Results are rows, which every replica reads.
//! Tests: `tests/it/race.rs`, `tests/pages/race.rs`.

mod buyers;
pub mod execute;
pub mod model;
pub mod runner;
pub mod store;
