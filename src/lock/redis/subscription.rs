//! A subscription to a Redis channel, for one server, a Cluster and sentinels.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Connection, timed_out};
use super::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT, Redis};

/// Interval of the `PING`s that check the connection.
const SILENCE: Duration = Duration::from_secs(2);

/// The messages of a channel, until its connection ends.
///
/// Does not guarantee delivery: messages published while there is no connection are lost.
pub(in crate::lock) struct Subscription {
    sink: PubSubSink,
    stream: PubSubStream,
    /// Changes when another server becomes the primary.
    moved: Option<watch::Receiver<Option<ConnectionAddr>>>,
    asked_last: Instant,
}

impl Redis {
    /// Subscribes to `channel`. In a Cluster, each node delivers messages published on any other.
    pub(in crate::lock) async fn subscribe(
        &self,
        channel: &str,
    ) -> Result<Subscription, RedisError> {
        let (places, moved) = match &self.connection {
            Connection::One(_) => (self.place.iter().cloned().collect(), None),
            Connection::Cluster(routed) => (routed.places().await, None),
            Connection::Sentinel(sentinel) => {
                let (place, moved) = sentinel.whereabouts().await?;
                (vec![place], Some(moved))
            }
        };
        let mut connecting: FuturesUnordered<_> =
            places.into_iter().map(|place| connect(place, channel)).collect();
        let mut trouble = RedisError::from((ErrorKind::Io, "there is nobody to listen to"));
        while let Some(connected) = connecting.next().await {
            match connected {
                Ok(pubsub) => {
                    let (sink, stream) = pubsub.split();
                    return Ok(Subscription { sink, stream, moved, asked_last: Instant::now() });
                }
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }
}

async fn connect(place: ConnectionInfo, channel: &str) -> Result<PubSub, RedisError> {
    let connecting = async {
        let mut pubsub = Client::open(place)?.get_async_pubsub().await?;
        pubsub.subscribe(channel).await?;
        Ok(pubsub)
    };
    timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(timed_out()))
}

impl Subscription {
    /// Returns the next message; `None` if the connection ended or the primary changed.
    pub(in crate::lock) async fn next(&mut self) -> Result<Option<String>, RedisError> {
        loop {
            let moved = async {
                match &mut self.moved {
                    Some(moved) => moved.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                word = self.stream.next() => {
                    let word = word.map(|word| word.get_payload()).transpose()?;
                    return Ok(word);
                }
                _ = moved => return Ok(None),
                () = sleep_until(self.asked_last + SILENCE) => {
                    let answer = timeout(RESPONSE_TIMEOUT, self.sink.ping::<Value>()).await;
                    answer.unwrap_or_else(|_| Err(timed_out()))?;
                    self.asked_last = Instant::now();
                }
            }
        }
    }
}
