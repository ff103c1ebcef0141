//! State of the fenced locks of one process, shared by their actors and the listener.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::guard::Message;
use super::protocol::Protocol;
use super::timing::Timing;
use crate::observer::{Event, Observer};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) protocol: Protocol,
    pub(super) timing: Timing,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Begins the ids of this process and names its channel. New with every start.
    pub(super) process: String,
    /// Senders to the actors of the keys that this process holds or waits for.
    pub(super) actors: Mutex<HashMap<String, mpsc::UnboundedSender<Message>>>,
}

impl Shared {
    pub(super) fn observe(&self, event: Event) {
        if let Some(observer) = &self.observer {
            observer.observe(event);
        }
    }

    /// Sends a message to the key's actor, if there is one.
    pub(super) fn notify(&self, redis_key: &str, message: Message) {
        let actors = self.actors.lock();
        if let Some(actor) = actors.get(redis_key) {
            let _ = actor.send(message);
        }
    }
}
