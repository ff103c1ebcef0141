//! Postgres: the pool, the migrations, and the classification of errors.
//!
//! Guarantees: every session has timeouts, so that a process that is paused in a transaction blocks
//! others for a bounded time; an acknowledged commit is on disk ([`check_server`]). It does not
//! retry transactions: only their owner can repeat one as a whole.

mod address;
mod connect;
mod connect_error;
mod connection;
mod error;
mod error_class;
mod migrate;
mod pool;
mod pool_state;
mod replica_session;
mod sequences;
mod server_check;
mod session;
mod tls;

pub use connect::{check_reachable, connect, connect_to_any, pool};
pub use connection::{Connection, Transaction};
pub use error::Error;
pub use error_class::{ErrorClass, classify, violates};
pub use migrate::{migrate, migration_texts};
pub use pool::Pool;
pub use replica_session::{RecordedFamily, ReplicaSession, forget_lock_family, message_key};
pub use sequences::{check_sequences, sequence_queries};
pub use server_check::{check_database, check_readable, check_server};
pub use tls::warn_of_plain_text;
