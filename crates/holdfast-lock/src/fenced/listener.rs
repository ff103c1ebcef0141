//! Subscription to this process's channel, on which scripts of other processes publish.
//!
//! Every message is a hint: a lost message costs one poll. In a Cluster, a plain channel reaches
//! all nodes, so that the keys that others wait for get sharded ones.

use std::sync::Weak;
use std::time::Duration;

use super::guard::Message;
use super::protocol::Grant;
use super::shared::Shared;
use crate::Redis;
use crate::redis::{MessageReceiver, ShardListener, Subscription, message_queue, sharded_channel};
use crate::time::sleep;

/// Pause before reconnecting; it doubles with each failure.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before reconnecting: without messages, waiters poll.
const MAX_PAUSE: Duration = Duration::from_secs(1);

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
        if let Some((key, message)) = parse(&payload) {
            // The next one need not reach all nodes.
            if let Some(channel) = sharded_channel(channel, key) {
                sharded.subscribe(&channel);
            }
            shared.notify(key, message);
        }
    }
}

async fn pass_on_sharded_messages(mut receiver: MessageReceiver, shared: &Weak<Shared>) {
    while let Some(payload) = receiver.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        if let Some((key, message)) = parse(&payload) {
            shared.notify(key, message);
        }
    }
}

/// Parses a message that a script published. Returns its key, which comes last because it may
/// contain spaces, and the message.
fn parse(payload: &str) -> Option<(&str, Message)> {
    let (word, rest) = payload.split_once(' ')?;
    if word == "waiting" {
        return Some((rest, Message::RemoteWaiter));
    }
    let [id, fence, remote_waiters, key] = *rest.splitn(4, ' ').collect::<Vec<_>>() else {
        return None;
    };
    let grant = Grant { fence: fence.parse().ok()?, remote_waiters: remote_waiters != "0" };
    (word == "granted").then(|| (key, Message::Granted { id: id.to_owned(), grant }))
}
