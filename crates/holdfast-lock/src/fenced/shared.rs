//! State of the fenced locks of one process, shared by their actors and the listener.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::guard::Message;
use super::protocol::Protocol;
use super::timing::Timing;
use crate::observer::{Event, Observer};
use crate::task::AbortOnDrop;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) protocol: Protocol,
    pub(super) timing: Timing,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) observer_failed: AtomicBool,
    /// Begins the ids of this process and names its channel. New with every start.
    pub(super) process: String,
    /// Senders to the actors of the keys that this process holds or waits for.
    pub(super) actors: Mutex<HashMap<String, mpsc::UnboundedSender<Message>>>,
    /// The task that receives the messages of the process's channel.
    pub(super) listener: OnceLock<AbortOnDrop>,
}

impl Shared {
    pub(super) fn observe(&self, event: Event) {
        if let Some(observer) = &self.observer {
            // A panic would end the task that renews and releases the lock.
            let observed = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));
            if observed.is_err() && !self.observer_failed.swap(true, Ordering::Relaxed) {
                tracing::error!(?event, "the observer of the locks panicked; said once");
            }
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
