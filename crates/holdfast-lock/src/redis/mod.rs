//! The connection to Redis that all locks of a process share: to one server, a Cluster, or the
//! current primary behind sentinels.
//!
//! Guarantees: a command succeeds or fails within 0.8 s. If this process is stopped meanwhile, the
//! response that arrived is read before the command fails, which may take 0.1 s more. After a
//! command without a response, further ones fail at once for 0.25 s, unless the server responds to
//! another meanwhile; in a Cluster, those to the silent node, until it responds. A broken
//! connection is re-established in the background, and a login that was refused is repeated. A
//! command is sent once, unless the server responded that it did not execute it. A command that
//! timed out *may have been executed*: a caller that acquires something must be prepared to release
//! it.

mod address;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod error;
#[cfg(feature = "cluster")]
mod node;
mod outage;
mod refusal;
mod request;
mod search;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
#[cfg(feature = "cluster")]
mod slots;
mod subscription;
#[cfg(feature = "tls")]
mod tls;

pub use address::ADDRESS_FORMS;
pub use client::Redis;
pub(crate) use client::set_if_absent;
pub use error::Error;
pub(crate) use error::ErrorCause;
pub use refusal::Refusal;
pub(crate) use request::RESPONSE_TIMEOUT;
pub(crate) use subscription::Subscription;
#[cfg(feature = "tls")]
pub use tls::{TlsFailure, TlsSettings};
