//! The private Postgres and Redis of `holdfast up`, and the replicas that it supervises.
//!
//! Guarantees: one `up` per data folder; services that only their own user and root can reach;
//! children that start in order, restart after a crash and stop in order; no process left running,
//! however `up` ends (after a SIGKILL the next `up` cleans up). It touches no process, server or
//! data without proof that they are its own. No guarantees on Windows, which lacks signals.
//!
//! Reading order: `up` (the whole sequence), `data_dir`, `identity`, `services_dir`, `owned`,
//! `account`, `programs`, `sockets`, `orphans`, `process_info`, `cpu_time`, `process`,
//! `ports`, `supervisor`, then one file per kind of child. Tests: `tests/alone/up/mod.rs`.

mod account;
mod args;
mod cpu_time;
mod data_dir;
mod identity;
pub mod load;
mod orphans;
mod owned;
mod ports;
mod postgres;
mod process;
mod process_info;
mod programs;
mod proxy;
mod redis;
mod replicas;
mod services_dir;
mod sockets;
mod supervisor;
mod temp_postgres;
mod temp_redis;
mod temp_replicas;
mod temp_shop;
mod up;

pub use args::{LabMode, UpArgs};
pub use cpu_time::CpuTime;
pub use data_dir::{RunningUp, read_env};
pub use ports::free_ports;
pub use postgres::MAX_CONNECTIONS;
pub use process::{own_program, tied_command};
pub use process_info::ProcessStat;
pub use proxy::{Exchange, Passing, Proxy, ServerKind, Statement, Traffic, Upstream, Watcher};
pub use replicas::{DEMO_PASSWORD_LENGTH, check_ready, reachable};
pub use supervisor::ProcessHandle;
pub use temp_postgres::{TempFolder, TempPostgres};
pub use temp_redis::TempRedis;
pub use temp_replicas::TempReplicas;
pub use temp_shop::TempShop;
pub use up::{ProcessControl, up};
