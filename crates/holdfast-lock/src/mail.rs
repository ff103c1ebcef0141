//! Messages to the process that holds a fenced lock, and between processes: a process that does not
//! hold a lock can have the one that does do its work.
//!
//! Guarantees: a message to a holder is published only while Redis has the lock under the lease
//! that the sender names. It may be lost, as may any message of Redis's `PUBLISH`, and when it
//! arrives, the lease may have ended: the receiver compares [`crate::FencedGuard::lease_id`]. It is
//! neither confidential nor authentic: who can publish in this Redis can send any.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Script, cmd};

use crate::process::name_in;
use crate::redis::Subscription;
use crate::time::sleep;
use crate::{Error, LockKey, Locks, Redis};

static SEND_TO_HOLDER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("send_to_holder.lua")));

/// Pause before an inbox subscribes again; it doubles with each failure.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before an inbox subscribes again.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Names the lease of a fenced lock: one acquisition by one process. The guards that the process
/// hands on under this lease share it; another acquisition has another one, also of the same
/// process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseId(String);

impl LeaseId {
    /// Creates the id that [`LeaseId::as_str`] returned, perhaps in another process.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns the id as a text without white space.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the process ([`Locks::process_id`]).
    #[must_use]
    pub fn process_id(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(process, _)| process)
    }

    /// Returns the name of the process ([`crate::Settings::name`]).
    #[must_use]
    pub fn process_name(&self) -> &str {
        name_in(&self.0).unwrap_or_default()
    }
}

/// What became of a message to a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It was published; in a Cluster, perhaps to nobody.
    Published,
    /// Nobody received it.
    NotReceived,
    /// It was not published: the lock is free, or held under this other lease.
    Moved(Option<LeaseId>),
}

impl Locks {
    /// Returns the id of this process: that of its leases, and the address of its inboxes.
    #[must_use]
    pub fn process_id(&self) -> String {
        self.process().id()
    }

    /// Returns whether this process holds the fenced lock on `key`, or waits for it: a hint.
    #[must_use]
    pub fn is_in_use_here(&self, key: &LockKey) -> bool {
        self.fenced_locks().has_actor(&self.redis_key(key))
    }

    /// Sends a message to the inbox `mailbox` of the process that holds `key` under `lease`, in one
    /// call of Redis.
    ///
    /// # Errors
    /// As [`Locks::acquire`]. The message may have been published.
    ///
    /// # Cancel safety
    /// Dropped before the first poll, nothing is sent; later, the message may be published.
    pub async fn send_to_holder(
        &self,
        key: &LockKey,
        lease: &LeaseId,
        mailbox: &str,
        message: &str,
    ) -> Result<Delivery, Error> {
        let channel = self.mail_channel(mailbox, lease.process_id());
        let mut call = SEND_TO_HOLDER.prepare_invoke();
        call.key(self.redis_key(key)).arg(&lease.0).arg(channel).arg(message);

        let (current, receivers): (String, i64) = self.redis().send_script(call).await?;
        Ok(match receivers {
            -2 => Delivery::NotReceived,
            ..0 => Delivery::Moved((!current.is_empty()).then_some(LeaseId(current))),
            // A node of a Cluster counts its own subscribers only.
            0 if !self.redis().is_cluster() => Delivery::NotReceived,
            _ => Delivery::Published,
        })
    }

    /// Sends a message to the inbox `mailbox` of the process with that [`Locks::process_id`].
    /// Fails, and is cancel safe, as [`Locks::send_to_holder`].
    pub async fn send_to_process(
        &self,
        process_id: &str,
        mailbox: &str,
        message: &str,
    ) -> Result<(), Error> {
        let mut publish = cmd("PUBLISH");
        publish.arg(self.mail_channel(mailbox, process_id)).arg(message);
        let () = self.redis().send(publish).await?;
        Ok(())
    }

    /// Opens the inbox of this process of that name.
    #[must_use]
    pub fn inbox(&self, mailbox: &str) -> Inbox {
        Inbox {
            redis: self.redis().clone(),
            channel: self.mail_channel(mailbox, &self.process_id()),
            subscription: None,
            state: InboxState::default(),
            pause: MIN_PAUSE,
        }
    }

    fn mail_channel(&self, mailbox: &str, process_id: &str) -> String {
        format!("{}mail:{mailbox}:{process_id}", self.settings().key_prefix)
    }
}

/// The messages that are sent to this process. Subscribes with the first call of [`Inbox::next`],
/// and again after a connection ended; what is sent while there is none is lost.
pub struct Inbox {
    redis: Redis,
    channel: String,
    subscription: Option<Subscription>,
    state: InboxState,
    pause: Duration,
}

/// Whether an [`Inbox`] receives what is sent to it. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct InboxState(Arc<Mutex<Option<Instant>>>);

impl InboxState {
    /// Returns the time at which the inbox subscribed; `None` while it is not subscribed. A hint: a
    /// connection that has broken may not be known to have.
    #[must_use]
    pub fn subscribed_since(&self) -> Option<Instant> {
        *self.0.lock()
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock() = since;
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.state.set(None);
    }
}

impl Inbox {
    /// Returns the state, which others may watch.
    #[must_use]
    pub fn state(&self) -> InboxState {
        self.state.clone()
    }

    /// Waits for the next message. Cancel safe: no message is lost.
    pub async fn next(&mut self) -> String {
        loop {
            if let Some(subscription) = &mut self.subscription {
                match subscription.next().await {
                    Ok(Some(message)) => return message,
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, "an inbox broke"),
                }
                self.subscription = None;
                self.state.set(None);
                // Also after a subscription that worked: a server may accept each, and end it.
                sleep(self.pause).await;
            }

            match self.redis.subscribe(&self.channel).await {
                Ok(subscription) => {
                    self.pause = MIN_PAUSE;
                    self.subscription = Some(subscription);
                    self.state.set(Some(Instant::now()));
                }
                Err(error) => {
                    tracing::debug!(%error, "can't subscribe to an inbox");
                    sleep(self.pause).await;
                    self.pause = MAX_PAUSE.min(self.pause * 2);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LeaseId;

    #[test]
    fn lease_id_names_its_process() {
        let lease = LeaseId::new("8081~0123.4567");
        assert_eq!((lease.process_id(), lease.process_name()), ("8081~0123", "8081"));
        assert_eq!(LeaseId::new("").process_name(), "");
    }
}
