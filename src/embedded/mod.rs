//! The private Postgres and Redis of `holdfast up`, and the replicas it supervises.
//!
//! Guarantees: one `up` per data folder; services that only their own user and root can reach;
//! children that are started in order, started again when they crash and stopped in order; nothing
//! left running, however `up` ends (after a SIGKILL the next `up` cleans up). It touches no process
//! and no server that it did not start itself.
//! It does not guarantee anything on Windows, which has neither signals nor these sockets.
//!
//! Reading order: `up` (the whole story), `data_dir`, `account`, `programs`, `sockets`,
//! `leftovers`, `spawner`, `supervisor`, then one file for each kind of child. This module serves
//! from below: it uses nothing else of the crate.

mod account;
mod data_dir;
mod error;
mod leftovers;
mod own;
mod postgres;
mod programs;
mod redis;
mod replicas;
mod sockets;
mod spare;
mod spawner;
mod supervisor;
mod up;

pub use data_dir::{RunningUp, read_env};
pub use error::Error;
pub use own::{OwnShop, Plan};
pub use spare::Spare;
pub use spawner::tied;
pub use supervisor::Hand;
pub use up::{Hands, UpOptions, up};

/// Says what is being done, to people: on stderr, where it does not mix with a result.
fn progress(message: &str) {
    use std::io::Write;
    // Nobody may be listening, and that is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{message}");
}
