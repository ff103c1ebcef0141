//! What the fenced locks of one process share.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::guard::Message;
use super::protocol::{Protocol, Timing};
use crate::lease::Leases;
use crate::observer::Event;

/// The state that the actors and the listener share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) protocol: Protocol,
    pub(super) timing: Timing,
    pub(super) leases: Leases,
    /// Begins the ids of this process and names its channel. New with every start.
    pub(super) process: String,
    pub(super) actors: Mutex<HashMap<String, mpsc::UnboundedSender<Message>>>,
    /// The task that receives the messages of the process's channel.
    pub(super) listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Shared {
    pub(super) fn observe(&self, event: Event) {
        self.leases.observe(event);
    }

    pub(super) fn channel(&self) -> String {
        format!("{}{}", self.protocol.channels, self.process)
    }

    pub(super) fn notify(&self, redis_key: &str, message: Message) {
        let actors = self.actors.lock();
        if let Some(actor) = actors.get(redis_key) {
            // An actor that has ended had nobody to notify.
            let _ = actor.send(message);
        }
    }
}
