//! Sends commands to one server, a Cluster, or the current primary behind sentinels.

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, Value};

#[cfg(feature = "cluster")]
use super::cluster::ClusterConnection;
use super::request::{RedisRequest, in_time};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinel;
use super::server::ServerConnection;

/// A connection to any kind of deployment. Cheap to clone; each call uses a clone of its own.
#[derive(Clone)]
pub(super) enum RedisConnection {
    One(ServerConnection),
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
    #[cfg(feature = "sentinel")]
    Sentinel(std::sync::Arc<Sentinel>),
}

impl RedisConnection {
    /// As [`super::Redis::for_release`].
    pub(super) fn for_release(&self) -> Self {
        match self {
            #[cfg(feature = "cluster")]
            RedisConnection::Cluster(cluster) => RedisConnection::Cluster(cluster.for_release()),
            other => other.clone(),
        }
    }

    async fn send(&mut self, request: RedisRequest<'_>) -> Result<Vec<Value>, RedisError> {
        match self {
            RedisConnection::One(one) => in_time(one.send(request)).await,
            #[cfg(feature = "cluster")]
            RedisConnection::Cluster(cluster) => cluster.send(request).await,
            #[cfg(feature = "sentinel")]
            RedisConnection::Sentinel(sentinel) => sentinel.send(request).await,
        }
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut values = self.send(RedisRequest::Command(command)).await?;
            Ok(values.pop().unwrap_or(Value::Nil))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipe: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(self.send(RedisRequest::Pipe(pipe, offset, count)))
    }

    fn get_db(&self) -> i64 {
        match self {
            RedisConnection::One(one) => one.db(),
            #[cfg(feature = "cluster")]
            RedisConnection::Cluster(_) => 0,
            #[cfg(feature = "sentinel")]
            RedisConnection::Sentinel(sentinel) => sentinel.db(),
        }
    }
}
