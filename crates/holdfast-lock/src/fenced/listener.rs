//! Subscription to this process's channel, on which scripts of other processes publish.
//!
//! Every message is a hint: a lost message costs one poll. A lost connection is re-established
//! while polling continues.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use super::guard::Message;
use super::protocol::Grant;
use super::shared::Shared;
use crate::Redis;

/// Pause before reconnecting.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Listens until the locks are dropped.
pub(super) async fn listen(redis: Redis, shared: Weak<Shared>) {
    let channel = |shared: Arc<Shared>| format!("{}{}", shared.protocol.channels, shared.process);
    while let Some(channel) = shared.upgrade().map(channel) {
        if let Err(error) = listen_once(&redis, &channel, &shared).await {
            tracing::debug!(%error, "the channel of granted locks broke");
        }
        sleep(RECONNECT_PAUSE).await;
    }
}

async fn listen_once(
    redis: &Redis,
    channel: &str,
    shared: &Weak<Shared>,
) -> Result<(), crate::redis::Error> {
    let mut subscription = redis.subscribe(channel).await?;
    while let Some(payload) = subscription.next().await? {
        let Some(shared) = shared.upgrade() else { return Ok(()) };
        if let Some((key, message)) = parse(&payload) {
            shared.notify(key, message);
        }
    }
    Ok(())
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
