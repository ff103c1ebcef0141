//! Sends commands to one server, a Cluster, or the current primary behind sentinels.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, Value};

use super::cluster::ClusterConnection;
use super::request::{RedisRequest, in_time};
use super::sentinel::Sentinel;
use super::server::ServerConnection;

/// A connection to any kind of deployment. Cheap to clone; each call uses a clone of its own.
#[derive(Clone)]
pub(super) enum RedisConnection {
    One(ServerConnection),
    Cluster(ClusterConnection),
    Sentinel(Arc<Sentinel>),
}

impl RedisConnection {
    pub(super) fn for_release(&self) -> Self {
        match self {
            RedisConnection::Cluster(cluster) => RedisConnection::Cluster(cluster.for_release()),
            other => other.clone(),
        }
    }

    async fn send(&mut self, request: RedisRequest<'_>) -> Result<Vec<Value>, RedisError> {
        match self {
            RedisConnection::One(one) => in_time(one.send(request)).await,
            RedisConnection::Cluster(cluster) => cluster.send(request).await,
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
        // Never asked for: a connection selects the database of its address.
        0
    }
}
