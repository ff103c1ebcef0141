//! Subscriptions to sharded channels that are renewed when a message shows that they have ended.

use std::collections::HashMap;
use std::time::Duration;

use super::client::Redis;
use super::messages::MessageSender;
use crate::time::Instant;

/// Pause between two subscriptions to the same channel: all messages come on the plain one if Redis
/// or the permissions have no sharded ones.
const PAUSE: Duration = Duration::from_secs(1);
/// Channels of which the last subscription is remembered.
const MAX_CHANNELS: usize = 1_024;

/// Adds the messages of sharded channels to those of a plain one. Does nothing without a Cluster.
pub(crate) struct ShardListener {
    redis: Redis,
    messages: MessageSender,
    subscribed_at: HashMap<String, Instant>,
}

impl ShardListener {
    pub(crate) fn new(redis: Redis, messages: MessageSender) -> Self {
        Self { redis, messages, subscribed_at: HashMap::new() }
    }

    /// Subscribes in the background, after a message came on the plain channel.
    pub(crate) fn subscribe(&mut self, channel: &str) {
        if !self.redis.is_cluster() {
            return;
        }
        let now = Instant::now();
        match self.subscribed_at.get(channel) {
            Some(at) if now - *at < PAUSE => return,
            None if self.subscribed_at.len() >= MAX_CHANNELS => self.subscribed_at.clear(),
            _ => {}
        }
        self.subscribed_at.insert(channel.to_owned(), now);

        let (redis, messages) = (self.redis.clone(), self.messages.clone());
        let channel = channel.to_owned();
        self.redis.spawn(async move {
            if let Err(error) = redis.subscribe_sharded(&channel, messages).await {
                tracing::debug!(%error, "can't subscribe to a sharded channel");
            }
        });
    }
}
