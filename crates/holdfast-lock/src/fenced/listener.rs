//! Subscription to this process's channel, on which scripts of other processes publish.
//!
//! Every message is a hint: a lost message costs one poll. Those that find no place in the inboxes,
//! or are too long to be a script's, are dropped. In a Cluster, a plain channel reaches
//! all nodes, so that the keys that others wait for get sharded ones.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::guard::ActorMessage;
use super::protocol::Grant;
use super::shared::Shared;
use crate::Redis;
use crate::redis::{MessageReceiver, ShardListener, Subscription, message_queue, sharded_channel};
use crate::time::sleep;

/// Pause before reconnecting; it doubles with each failure.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before reconnecting: without messages, waiters poll.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Longest id of an acquisition; those of [`KeyActor::new_id`](super::actor::KeyActor::new_id) have
/// about half as many.
const MAX_ID_BYTES: usize = 128;

/// Listens until the locks are dropped.
pub(super) async fn listen(redis: Redis, shared: Weak<Shared>) {
    let (sender, receiver) = message_queue();
    let sharded = ShardListener::new(redis.clone(), sender);
    tokio::join!(
        listen_on_plain_channel(redis, sharded, &shared),
        pass_on_sharded_messages(receiver, &shared)
    );
}

async fn listen_on_plain_channel(redis: Redis, mut sharded: ShardListener, shared: &Weak<Shared>) {
    let mut pause = MIN_PAUSE;
    while let Some(channel) = shared.upgrade().map(|shared| shared.channel()) {
        match redis.subscribe(&channel).await {
            Ok(subscription) => {
                pause = MIN_PAUSE;
                receive(subscription, &channel, &mut sharded, shared).await;
            }
            Err(error) => tracing::debug!(%error, "can't subscribe to the channel of grants"),
        }

        // Also after a subscription that worked: a server may accept each, and end it.
        sleep(pause).await;
        pause = MAX_PAUSE.min(pause * 2);
    }
}

/// Passes messages on until the subscription ends.
async fn receive(
    mut subscription: Subscription,
    channel: &str,
    sharded: &mut ShardListener,
    shared: &Weak<Shared>,
) {
    loop {
        let payload = match subscription.next().await {
            Ok(Some(payload)) => payload,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "the channel of grants broke"),
        };
        let Some(shared) = shared.upgrade() else { return };
        if let Some(key) = pass_on(&payload, &shared) {
            // The next one need not reach all nodes.
            if let Some(channel) = sharded_channel(channel, key) {
                sharded.subscribe(&channel);
            }
        }
    }
}

async fn pass_on_sharded_messages(mut receiver: MessageReceiver, shared: &Weak<Shared>) {
    while let Some(payload) = receiver.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        pass_on(&payload, &shared);
    }
}

/// Passes a message that a script published to the actor of its key. Returns the key, or `None` for
/// anything else.
fn pass_on<'a>(payload: &'a str, shared: &Shared) -> Option<&'a str> {
    let (key, hint) = parse(payload)?;
    let place = Arc::clone(&shared.hint_places).try_acquire_owned();

    if let Ok(place) = place {
        let message = match hint {
            Hint::RemoteWaiter => ActorMessage::RemoteWaiter { _place: place },
            Hint::Granted { id, grant } => {
                ActorMessage::Granted { id: id.to_owned(), grant, _place: place }
            }
        };
        shared.notify(key, message);
    }
    Some(key)
}

enum Hint<'a> {
    RemoteWaiter,
    Granted { id: &'a str, grant: Grant },
}

/// Parses a message that a script published. Returns its key, which comes last because it may
/// contain spaces, and the message.
fn parse(payload: &str) -> Option<(&str, Hint<'_>)> {
    let (word, rest) = payload.split_once(' ')?;
    if word == "waiting" {
        return Some((rest, Hint::RemoteWaiter));
    }

    let [id, fence, remote_waiters, key] = *rest.splitn(4, ' ').collect::<Vec<_>>() else {
        return None;
    };
    let is_grant = word == "granted" && id.len() <= MAX_ID_BYTES;
    let grant = Grant { fence: fence.parse().ok()?, remote_waiters: remote_waiters != "0" };
    is_grant.then_some((key, Hint::Granted { id, grant }))
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::super::FencedLocks;
    use super::super::shared::MAX_WAITING_HINTS;
    use super::*;

    #[tokio::test]
    async fn flood_of_messages_fills_no_inbox() {
        let locks = FencedLocks::without_redis();
        let shared = &locks.0;
        // An actor that waits for Redis reads none of its messages.
        let (sender, mut inbox) = mpsc::unbounded_channel();
        shared.actors.lock().insert("key".to_owned(), sender);

        for _ in 0..MAX_WAITING_HINTS {
            pass_on("waiting key", shared);
            pass_on("granted id 7 0 key", shared);
        }
        let long_id = "x".repeat(MAX_ID_BYTES + 1);
        assert_eq!(pass_on(&format!("granted {long_id} 7 0 key"), shared), None);
        assert_eq!(inbox.len(), MAX_WAITING_HINTS);

        while inbox.try_recv().is_ok() {}
        assert_eq!(pass_on("granted id 8 0 key", shared), Some("key"));
        assert!(matches!(inbox.try_recv(), Ok(ActorMessage::Granted { .. })));
    }
}
