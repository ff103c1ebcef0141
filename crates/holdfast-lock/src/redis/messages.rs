//! The queue between a subscription and the reader of its messages.
//!
//! Guarantees: it takes at most [`MAX_QUEUED_BYTES`] of any flood of messages. A message that finds
//! no room is dropped and counted: every message is a hint, and may be lost in Redis, too. A reader
//! that has caught up gets all later ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::time::Instant;

/// Some hundred messages of full batches.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Longest message: many times that of a full batch.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Bytes that a message takes beside its text.
const OVERHEAD_BYTES: usize = 128;
/// Interval between two lines in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Creates a queue. Its messages are dropped once the receiver is.
pub(crate) fn message_queue() -> (MessageSender, MessageReceiver) {
    queue_of(MAX_QUEUED_BYTES)
}

fn queue_of(max_bytes: usize) -> (MessageSender, MessageReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(max_bytes));
    let dropped = Arc::default();
    (MessageSender { sender, room, dropped }, MessageReceiver(receiver))
}

/// Adds messages to a queue. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct MessageSender {
    sender: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    dropped: Arc<Dropped>,
}

pub(crate) struct MessageReceiver(mpsc::UnboundedReceiver<Queued>);

/// A message, and its part of the queue's room.
struct Queued {
    message: String,
    _room: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Dropped {
    count: AtomicU64,
    logged_at: Mutex<Option<Instant>>,
}

impl MessageSender {
    /// Adds a message if there is room for it. Returns `false` if the receiver is gone.
    pub(crate) fn send(&self, message: String) -> bool {
        // An odd capacity takes room, too.
        let bytes = message.capacity() + OVERHEAD_BYTES;
        let is_short = message.len() <= MAX_MESSAGE_BYTES;
        let bytes = u32::try_from(bytes).ok().filter(|_| is_short);
        let room =
            bytes.and_then(|bytes| Arc::clone(&self.room).try_acquire_many_owned(bytes).ok());
        let Some(room) = room else {
            self.dropped.add_one();
            return !self.sender.is_closed();
        };
        self.sender.send(Queued { message, _room: room }).is_ok()
    }
}

impl MessageReceiver {
    /// Waits for the next message; `None` once all senders are gone.
    pub(crate) async fn recv(&mut self) -> Option<String> {
        self.0.recv().await.map(|queued| queued.message)
    }
}

impl Dropped {
    fn add_one(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged_at = self.logged_at.lock();
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged_at = Some(Instant::now());
            tracing::warn!(
                dropped = count,
                "messages of Redis are dropped: they arrive faster than they are read, or are too \
                 long. Who may publish there?"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for three messages of this length.
    const LENGTH: usize = 1_000;
    const ROOM: usize = 3 * (LENGTH + OVERHEAD_BYTES);

    /// Without capacity that it does not use.
    fn message(text: &str) -> String {
        format!("{text:>LENGTH$}").into_boxed_str().into_string()
    }

    #[tokio::test]
    async fn full_queue_drops_and_works_again() {
        let (sender, mut receiver) = queue_of(ROOM);
        for n in 0..1_000 {
            assert!(sender.send(message(&n.to_string())));
        }
        assert_eq!(receiver.0.len(), 3);
        assert_eq!(sender.dropped.count.load(Ordering::Relaxed), 997);

        for n in 0..3 {
            assert_eq!(receiver.recv().await, Some(message(&n.to_string())));
        }
        assert!(sender.send("after the flood".to_owned()));
        assert_eq!(receiver.recv().await.as_deref(), Some("after the flood"));
        assert_eq!(sender.room.available_permits(), ROOM);
    }

    #[tokio::test]
    async fn long_message_is_dropped() {
        let (sender, mut receiver) = message_queue();
        assert!(sender.send("x".repeat(MAX_MESSAGE_BYTES + 1)));
        assert!(sender.send("short".to_owned()));
        assert_eq!(receiver.recv().await.as_deref(), Some("short"));
        drop(receiver);
        assert!(!sender.send("short".to_owned()));
    }
}
