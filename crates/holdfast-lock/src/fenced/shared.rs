//! What the fenced locks of one process share.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::guard::ActorMessage;
use super::protocol::{Protocol, Timing};
use crate::lease::Leases;

/// Most messages of Redis that wait in the inboxes of this process: anyone who may publish there
/// can send as many as they like, and an actor that waits for Redis reads none.
pub(super) const MAX_WAITING_HINTS: usize = 4_096;

/// The state that the actors and the listener share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) protocol: Protocol,
    pub(super) timing: Timing,
    pub(super) leases: Leases,
    /// Begins the ids of this process and names its channel. New with every start.
    pub(super) process: String,
    pub(super) actors: Mutex<HashMap<String, mpsc::UnboundedSender<ActorMessage>>>,
    /// The free places for messages of Redis in all inboxes together.
    pub(super) hint_places: Arc<Semaphore>,
    /// The task that receives the messages of the process's channel.
    pub(super) listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Shared {
    pub(super) fn channel(&self) -> String {
        format!("{}{}", self.protocol.channels, self.process)
    }

    pub(super) fn notify(&self, redis_key: &str, message: ActorMessage) {
        let actors = self.actors.lock();
        if let Some(actor) = actors.get(redis_key) {
            // An actor that has ended had no waiter to notify.
            let _ = actor.send(message);
        }
    }
}
