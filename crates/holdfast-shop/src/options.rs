//! The options of one request: the server's own settings, or those of the lab's headers.

use std::time::Duration;

use holdfast_lock::{LockKey, Wait};
use tokio::time::Instant;
use uuid::Uuid;

use super::command::Command;
use super::strategy::Strategy;
use crate::locks::QueueOptions;
use crate::probe::Probe;

#[derive(Debug, Clone)]
pub struct RequestOptions {
    pub strategy: &'static Strategy,
    pub wait: Option<Wait>,
    /// Interval of [`Wait::Retry`], if not the server's.
    pub retry: Option<Duration>,
    pub queue_options: QueueOptions,
    pub ttl: Option<Duration>,
    pub probe: Probe,
    /// True if a user who is no admin set options by lab headers: then only lab items may be
    /// changed.
    pub lab_items_only: bool,
    /// True if it concerns lab items: its connections are those of
    /// [`super::Shop::lab_connections`].
    pub in_lab: bool,
    pub payment_window: Duration,
    pub deadline: Instant,
    pub request_id: Uuid,
}

impl RequestOptions {
    /// Returns the key of the queue that the command joins. `None` if it is executed alone: it is
    /// not batched, or the request has options that a batch can't apply to a single command.
    pub(super) fn batch_key(&self, command: &dyn Command) -> Option<LockKey> {
        let batches = self.strategy.batches && self.wait.is_none() && self.ttl.is_none();
        command.batch_key().filter(|_| batches)
    }
}
