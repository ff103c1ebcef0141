//! The connection to Redis that all locks of a process share: to one server, a Cluster, or the
//! current primary behind sentinels.
//!
//! Guarantees: a command succeeds or fails within 0.8 s (0.9 s if this process was stopped: what
//! arrived is read first). After a command without a response, further ones fail at once for
//! 0.25 s, unless the server responds to another; in a Cluster, those to the silent node, until it
//! responds. A broken connection is re-established, and a login that was refused is repeated. A
//! command is sent once, unless the server responded that it did not execute it. A command that
//! timed out *may have been executed*: its caller must be prepared to release what it acquired.

mod address;
mod background;
mod client;
mod cluster;
#[cfg(feature = "redis-api")]
mod commands;
mod connection;
mod error;
#[cfg(test)]
pub(crate) mod in_memory;
mod messages;
mod node;
mod outage;
mod receivers;
mod refusal;
mod request;
mod search;
mod sentinel;
mod server;
mod shard_listener;
mod sharded;
mod slots;
mod subscription;
mod tls;

pub use client::Redis;
pub(crate) use client::{escape_pattern, set_if_absent};
pub use error::Error;
pub(crate) use error::ErrorCause;
pub(crate) use messages::{MessageReceiver, MessageSender, message_queue};
pub use refusal::Refusal;
pub(crate) use request::RESPONSE_TIMEOUT;
pub(crate) use shard_listener::ShardListener;
pub(crate) use subscription::{Subscription, sharded_channel};
pub use tls::{TlsFailure, TlsSettings};
