//! Who gets the messages of the sharded channels of a Cluster.

use std::collections::HashMap;

use parking_lot::Mutex;
use redis::{PushInfo, Value, from_redis_value};

use super::messages::MessageSender;
use super::slots::Node;

/// Subscriptions of one client; beyond, the oldest one is given up.
const MAX_CHANNELS: usize = 1_024;

#[derive(Default)]
pub(super) struct Receivers(Mutex<HashMap<String, Receiver>>);

struct Receiver {
    messages: MessageSender,
    node: Node,
    /// Larger than that of all earlier ones.
    number: u64,
}

impl Receivers {
    /// Returns the oldest channel and its node, if it had to go.
    pub(super) fn add(
        &self,
        channel: &str,
        node: &Node,
        messages: MessageSender,
    ) -> Option<(String, Node)> {
        let mut receivers = self.0.lock();
        let number = receivers.values().map(|receiver| receiver.number + 1).max().unwrap_or(0);
        let receiver = Receiver { messages, node: node.clone(), number };
        receivers.insert(channel.to_owned(), receiver);

        if receivers.len() <= MAX_CHANNELS {
            return None;
        }
        let oldest = receivers.iter().min_by_key(|(_, receiver)| receiver.number)?.0.clone();
        let receiver = receivers.remove(&oldest)?;
        Some((oldest, receiver.node))
    }

    pub(super) fn remove(&self, channel: &str) {
        self.0.lock().remove(channel);
    }

    /// Passes a message of a sharded channel on.
    pub(super) fn receive(&self, push: &PushInfo) {
        let [channel, message] = &push.data[..] else { return };
        let texts = [channel, message].map(|value: &Value| from_redis_value(value.clone()));
        let [Ok(channel), Ok(message)]: [Result<String, _>; 2] = texts else { return };

        let mut receivers = self.0.lock();
        if let Some(receiver) = receivers.get(&channel)
            && !receiver.messages.send(message)
        {
            receivers.remove(&channel);
        }
    }
}
