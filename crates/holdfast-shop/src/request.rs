//! What a command gets of its request: the context that each has, and what the lab asks of one.

use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::{LockKey, Wait};
use tokio::time::Instant;
use uuid::Uuid;

use super::command::Command;
use super::context::{COMMAND_TIMEOUT, Shop};
use super::strategy::Strategy;
use crate::locks::QueueOptions;
use crate::probe::Probe;

#[derive(Debug, Clone)]
pub struct RequestContext {
    pub request_id: Uuid,
    pub deadline: Instant,
    pub strategy: &'static Strategy,
    /// Of the locks, if not the server's.
    pub ttl: Option<Duration>,
    pub payment_window: Duration,
    /// True if it concerns lab items: its connections are those of
    /// [`super::Shop::lab_connections`].
    pub in_lab: bool,
    /// `None` on the way of a customer.
    pub lab: Option<Arc<LabOptions>>,
}

/// The settings of the lab for one request.
#[derive(Debug, Default)]
pub struct LabOptions {
    pub wait: Option<Wait>,
    /// Interval of [`Wait::Retry`], if not the server's.
    pub retry: Option<Duration>,
    /// Time for which the lock is renewed, if not as the server says.
    pub max_hold: Option<Duration>,
    pub queue: QueueOptions,
    pub probe: Probe,
    /// True if a user who is no admin set them: then only lab items may be changed.
    pub lab_items_only: bool,
}

impl RequestContext {
    /// Returns the context with the settings of the server.
    pub fn new(shop: &Shop, request_id: Uuid) -> Self {
        Self {
            request_id,
            deadline: Instant::now() + COMMAND_TIMEOUT,
            strategy: shop.strategy,
            ttl: None,
            payment_window: shop.payment_window,
            in_lab: false,
            lab: None,
        }
    }

    /// Returns the context of the lab's own request, which passes a probe.
    #[must_use]
    pub fn probed(self, probe: Probe) -> Self {
        Self { lab: Some(Arc::new(LabOptions { probe, ..LabOptions::default() })), ..self }
    }

    pub fn probe(&self) -> &Probe {
        self.lab.as_ref().map_or(&Probe::Off, |lab| &lab.probe)
    }

    /// Returns the key of the queue that the command joins. `None` if it is executed alone: it is
    /// not batched, or the request has options that a batch can't apply to a single command.
    pub(super) fn batch_key(&self, command: &dyn Command) -> Option<LockKey> {
        let waits = self.lab.as_ref().is_some_and(|lab| lab.wait.is_some());
        let batches = self.strategy.batches && self.ttl.is_none() && !waits;
        command.batch_key().filter(|_| batches)
    }
}
