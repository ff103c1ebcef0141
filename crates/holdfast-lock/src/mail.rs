//! Messages to the process that holds a fenced lock, and between processes: a process that does not
//! hold a lock can have the one that does do its work.
//!
//! Guarantees: a message to a holder is published only while Redis has the lock under the lease
//! that the sender names. It may be lost, as may any message of Redis's `PUBLISH`, and when it
//! arrives, the lease may have ended: the receiver compares [`crate::FencedGuard::lease_id`]. It is
//! neither confidential nor authentic: who can publish in this Redis can send any. An inbox keeps
//! at most 16 MiB for its reader, and drops what arrives beyond (`redis/messages.rs`).

use std::future::pending;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Script, cmd};
use tokio_util::task::AbortOnDropHandle;

use crate::process::name_in;
use crate::redis::{MessageReceiver, MessageSender, ShardListener, message_queue, sharded_channel};
use crate::time::sleep;
use crate::{Error, LockKey, Locks, Redis};

static SEND_TO_HOLDER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("send_to_holder.lua")));

/// Ends the id of a lease for which only callers have asked that take mail.
pub(crate) const TAKES_MAIL: &str = ".mail";

/// Pause before an inbox subscribes again; it doubles with each failure.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before an inbox subscribes again.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Names the lease of a fenced lock: one acquisition by one process. The guards that the process
/// hands on under this lease share it; another acquisition has another one, also of the same
/// process.
#[doc(hidden)]
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

    /// Returns whether all callers that had asked for the lease when Redis was asked take mail
    /// ([`crate::AcquireRequest::takes_mail`]). A caller that joined later may hold it.
    #[must_use]
    pub fn takes_mail(&self) -> bool {
        self.0.ends_with(TAKES_MAIL)
    }

    /// Returns the name of the process ([`crate::Settings::name`]).
    #[must_use]
    pub fn process_name(&self) -> &str {
        name_in(&self.0).unwrap_or_default()
    }
}

/// The result of sending a message to a holder.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It was published; in a Cluster, perhaps without a receiver.
    Published,
    /// It had no receiver.
    NotReceived,
    /// It was not published: the lock is free, or held under this other lease.
    Moved(Option<LeaseId>),
}

#[doc(hidden)]
impl Locks {
    /// Returns the id of this process: that of its leases, and the address of its inboxes.
    #[must_use]
    pub fn process_id(&self) -> String {
        self.process.id()
    }

    /// Returns whether this process holds the fenced lock on `key`, or waits for it: a hint.
    #[must_use]
    pub fn is_in_use_here(&self, key: &LockKey) -> bool {
        self.fenced.has_actor(&self.redis_key(key))
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
        let publishing = if self.redis().is_cluster() { "sharded" } else { "plain" };
        call.key(self.redis_key(key)).arg(&lease.0).arg(channel).arg(message).arg(publishing);

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
        let channel = self.mail_channel(mailbox, process_id);
        let command = |name, text: &str| cmd(name).arg(&channel).arg(text).to_owned();
        if !self.redis().is_cluster() {
            let () = self.redis().send(command("PUBLISH", message)).await?;
            return Ok(());
        }

        // To one node. If it has no subscriber there, or no sharded channels, to all.
        match self.redis().send(command("SPUBLISH", message)).await {
            Ok(0) => {}
            Err(error) if !error.is_unavailable() => {}
            published => return Ok(published.map(|_: i64| ())?),
        }
        let () = self.redis().send(command("PUBLISH", &format!("0:{message}"))).await?;
        Ok(())
    }

    /// Opens the inbox of this process of that name.
    #[must_use]
    pub fn inbox(&self, mailbox: &str) -> Inbox {
        let channel = self.mail_channel(mailbox, &self.process_id());
        Inbox { redis: self.redis().clone(), channel, state: InboxState::default(), open: None }
    }

    fn mail_channel(&self, mailbox: &str, process_id: &str) -> String {
        format!("{}mail:{mailbox}:{process_id}", self.settings().key_prefix)
    }
}

/// The messages that are sent to this process. Subscribes with the first call of [`Inbox::next`],
/// and again after a connection ended; what is sent while there is none is lost.
#[doc(hidden)]
pub struct Inbox {
    redis: Redis,
    channel: String,
    state: InboxState,
    open: Option<OpenInbox>,
}

/// Whether an [`Inbox`] receives what is sent to it. Cheap to clone; clones share it.
#[doc(hidden)]
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

/// Messages that have arrived, and the task that receives them.
struct OpenInbox {
    messages: MessageReceiver,
    _receiving: AbortOnDropHandle<()>,
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
        let open = self.open.get_or_insert_with(|| {
            let (sender, messages) = message_queue();
            let receiving =
                receive(self.redis.clone(), self.channel.clone(), sender, self.state.clone());
            OpenInbox { messages, _receiving: AbortOnDropHandle::new(self.redis.spawn(receiving)) }
        });
        match open.messages.recv().await {
            Some(message) => message,
            // Its task does not end before.
            None => pending().await,
        }
    }
}

/// Receives until the inbox is dropped.
async fn receive(redis: Redis, channel: String, messages: MessageSender, state: InboxState) {
    let mut pause = MIN_PAUSE;
    let mut sharded = ShardListener::new(redis.clone(), messages.clone());
    loop {
        match redis.subscribe(&channel).await {
            Ok(mut subscription) => {
                pause = MIN_PAUSE;
                state.set(Some(Instant::now()));
                sharded.subscribe(&channel);
                loop {
                    match subscription.next().await {
                        Ok(Some(message)) if redis.is_cluster() => {
                            let (key, message) = parse(&message);
                            let of_key = key.and_then(|key| sharded_channel(&channel, key));
                            sharded.subscribe(of_key.as_deref().unwrap_or(&channel));
                            messages.send(message.to_owned());
                        }
                        Ok(Some(message)) => _ = messages.send(message),
                        Ok(None) => break,
                        Err(error) => break tracing::debug!(%error, "an inbox broke"),
                    }
                }
                state.set(None);
            }
            Err(error) => tracing::debug!(%error, "can't subscribe to an inbox"),
        }

        // Also after a subscription that worked: a server may accept each, and end it.
        sleep(pause).await;
        pause = MAX_PAUSE.min(pause * 2);
    }
}

/// Splits what was published on the plain channel of an inbox in a Cluster: the key of the lock, if
/// the message is for its holder, and the message.
fn parse(published: &str) -> (Option<&str>, &str) {
    let parsed = published.split_once(':').and_then(|(length, rest)| {
        let (key, message) = rest.split_at_checked(length.parse().ok()?)?;
        Some(((!key.is_empty()).then_some(key), message))
    });
    parsed.unwrap_or((None, published))
}

#[cfg(test)]
mod tests {
    use super::{LeaseId, parse};

    #[test]
    fn published_text_has_its_key() {
        assert_eq!(parse("5:a:{b}c:d"), (Some("a:{b}"), "c:d"));
        assert_eq!(parse("0:c:d"), (None, "c:d"));
        for other in ["c", "9:c", "x:c"] {
            assert_eq!(parse(other), (None, other));
        }
    }

    #[test]
    fn lease_id_names_its_process() {
        let lease = LeaseId::new("8081~0123.4567");
        assert_eq!((lease.process_id(), lease.process_name()), ("8081~0123", "8081"));
        assert_eq!(LeaseId::new("").process_name(), "");
        assert!(!lease.takes_mail());

        let marked = LeaseId::new("8081~0123.4567.mail");
        assert_eq!((marked.process_id(), marked.process_name()), ("8081~0123", "8081"));
        assert!(marked.takes_mail());
    }
}
