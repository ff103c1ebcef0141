//! The domain: the shop without HTTP and pages.
//!
//! A change is a [`command`], executed by the [`engine`] under a [`strategy`], written by the
//! [`store`]. `docs/ARCHITECTURE.md` follows a change from the handler to the ledger.

pub mod budget;
pub mod coalesce;
pub mod probe;
pub mod tasks;
pub mod tls;

pub mod db;
pub mod locks;

pub mod failure;
pub mod idempotency;
pub mod model;
pub mod types;

pub mod command;
pub mod strategy;

pub mod store;

pub mod context;
pub mod engine;
pub mod query;
mod request;

pub mod audit;
pub mod baskets;
pub mod jobs;
pub mod lock_family;
pub mod names;
pub mod passwords;
pub mod seed;
pub mod sessions;
pub mod students;
pub mod user_admin;
pub mod users;

pub use context::Shop;
pub use failure::with_timeout;
pub use failure::{
    Component, Error, Execution, Failure, FieldName, InvalidField, Rejection, StoredResponse,
};
pub use request::{LabOptions, RequestContext};
pub use strategy::Strategy;
pub use types::{Cents, IdempotencyKey, OrderId, Sku, UserId};

use std::time::Duration;

pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
pub const DEFAULT_PAYMENT_WINDOW: Duration = Duration::from_mins(15);
