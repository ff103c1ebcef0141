//! Sharded channels of a Cluster: their messages go to the node that has the channel's slot, and
//! not to all nodes.
//!
//! Guarantees nothing: a subscription ends with its connection, or when its slot moves, without
//! notice. A publisher learns from the number of receivers that there is none, and publishes on a
//! plain channel instead; a process that gets that message subscribes again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::{ConnectionInfo, RedisError};

use super::messages::MessageSender;
use super::receivers::Receivers;
use super::request::{RedisRequest, in_time};
use super::server::ServerConnection;
use super::slots::Node;

/// The subscriptions, and a connection for them to each node that has one. Not the connection of
/// the commands: a node that gives up a slot ends a subscription with what looks like a response.
#[derive(Default)]
pub(super) struct ShardedChannels {
    connections: Mutex<HashMap<Node, ServerConnection>>,
    receivers: Arc<Receivers>,
}

impl ShardedChannels {
    pub(super) async fn subscribe(
        &self,
        node: &Node,
        address: impl FnOnce() -> ConnectionInfo,
        channel: &str,
        messages: MessageSender,
    ) -> Result<(), RedisError> {
        let connection = self.connection(node, address)?;
        let oldest = self.receivers.add(channel, node, messages);
        let subscribed = execute(&connection, "SSUBSCRIBE", channel).await;
        if subscribed.is_err() {
            self.receivers.remove(channel);
        }

        if let Some((oldest, node)) = oldest {
            let connection = self.connections.lock().get(&node).cloned();
            if let Some(connection) = connection {
                execute(&connection, "SUNSUBSCRIBE", &oldest).await?;
            }
        }
        subscribed
    }

    fn connection(
        &self,
        node: &Node,
        address: impl FnOnce() -> ConnectionInfo,
    ) -> Result<ServerConnection, RedisError> {
        let mut connections = self.connections.lock();
        if let Some(connection) = connections.get(node) {
            return Ok(connection.clone());
        }
        let connection = ServerConnection::new(address(), Some(self.receivers.clone()))?;
        connections.insert(node.clone(), connection.clone());
        Ok(connection)
    }
}

async fn execute(
    connection: &ServerConnection,
    command: &'static str,
    channel: &str,
) -> Result<(), RedisError> {
    let command = redis::cmd(command).arg(channel).to_owned();
    let values = in_time(connection.send(RedisRequest::Command(&command))).await?;
    values.into_iter().try_for_each(|value| value.extract_error().map(drop))
}
