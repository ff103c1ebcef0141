//! A subscription to a Redis channel, for one server, a Cluster and sentinels.

use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{Client, ConnectionInfo, ErrorKind, RedisError, Value};

use super::client::Redis;
use super::connection::RedisConnection;
use super::error::Error;
use super::messages::MessageSender;
use super::request::{CONNECT_TIMEOUT, in_time, timed_out};
use super::search::first_ok;
use crate::key::hash_tag;
use crate::time::{Instant, sleep_until, timeout};

/// Interval of the `PING`s that check the connection.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// The messages of a channel, until its connection ends.
///
/// Does not guarantee delivery: messages published while there is no connection are lost. A primary
/// that was demoted delivers those of the new one, which are replicated to it.
pub(crate) struct Subscription {
    sink: PubSubSink,
    stream: PubSubStream,
    last_ping: Instant,
}

impl Redis {
    /// Subscribes to `channel`. In a Cluster, each node delivers messages published on any other.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<Subscription, Error> {
        self.open_subscription(channel).await.map_err(Error::new)
    }

    /// Adds the messages of a sharded channel to `messages`, until that subscription ends. Fails if
    /// there is no Cluster.
    pub(crate) async fn subscribe_sharded(
        &self,
        channel: &str,
        messages: MessageSender,
    ) -> Result<(), Error> {
        let subscribing = async {
            match &self.connection {
                RedisConnection::Cluster(cluster) => cluster.subscribe(channel, messages).await,
                _ => Err((ErrorKind::Client, "only a Cluster has shards").into()),
            }
        };
        subscribing.await.map_err(Error::new)
    }

    async fn open_subscription(&self, channel: &str) -> Result<Subscription, RedisError> {
        let addresses = match &self.connection {
            RedisConnection::One(server) => vec![server.address().clone()],
            RedisConnection::Cluster(cluster) => cluster.node_addresses().await,
            RedisConnection::Sentinel(sentinel) => vec![sentinel.primary_address().await?],
        };

        let no_server = RedisError::from((ErrorKind::Io, "there is no server to subscribe to"));
        let requests = addresses.into_iter().map(|address| connect(address, channel));
        let (sink, stream) = first_ok(requests, no_server).await?.split();
        Ok(Subscription { sink, stream, last_ping: Instant::now() })
    }
}

async fn connect(address: ConnectionInfo, channel: &str) -> Result<PubSub, RedisError> {
    let connecting = async {
        let mut pubsub = open(address).await?;
        pubsub.subscribe(channel).await?;
        Ok(pubsub)
    };
    timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(timed_out()))
}

async fn open(address: ConnectionInfo) -> Result<PubSub, RedisError> {
    #[cfg(test)]
    if let Some(stream) = super::in_memory::stream() {
        return PubSub::new(address.redis_settings(), stream).await;
    }
    Client::open(address)?.get_async_pubsub().await
}

/// Returns the sharded channel of the same slot as `redis_key` for what is published on `channel`,
/// as `publish.lua` does.
pub(crate) fn sharded_channel(channel: &str, redis_key: &str) -> Option<String> {
    let tag = std::str::from_utf8(hash_tag(redis_key.as_bytes())?).ok()?;
    Some(format!("{channel}:{{{tag}}}"))
}

impl Subscription {
    /// Returns the next message; `None` if the connection ended.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            tokio::select! {
                // A message shows that the connection works, as the response to a ping does.
                biased;
                message = self.stream.next() => {
                    let payload = message.map(|message| message.get_payload()).transpose();
                    return payload.map_err(Error::new);
                }
                () = sleep_until(self.last_ping + PING_INTERVAL) => {
                    in_time(self.sink.ping::<Value>()).await.map_err(Error::new)?;
                    self.last_ping = Instant::now();
                }
            }
        }
    }
}
