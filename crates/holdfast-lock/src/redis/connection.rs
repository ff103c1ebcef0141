//! Sends commands to one server, a Cluster, or the current primary behind sentinels.

use std::sync::Arc;

use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{Cmd, Pipeline, RedisFuture, Value};

use super::cluster::ClusterConnection;
use super::request::RedisRequest;
use super::sentinel::Sentinel;

/// A connection to any kind of deployment. Cheap to clone; each call uses a clone of its own.
#[derive(Clone)]
pub(super) enum RedisConnection {
    One(ConnectionManager),
    Cluster(ClusterConnection),
    Sentinel(Arc<Sentinel>),
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let request = RedisRequest::Command(command);
        Box::pin(async move {
            let mut values = match self {
                RedisConnection::One(one) => return one.send_packed_command(command).await,
                RedisConnection::Cluster(cluster) => cluster.send(request).await?,
                RedisConnection::Sentinel(sentinel) => sentinel.send(request).await?,
            };
            Ok(values.pop().unwrap_or(Value::Nil))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipe: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let request = RedisRequest::Pipe(pipe, offset, count);
        Box::pin(async move {
            match self {
                RedisConnection::One(one) => one.send_packed_commands(pipe, offset, count).await,
                RedisConnection::Cluster(cluster) => cluster.send(request).await,
                RedisConnection::Sentinel(sentinel) => sentinel.send(request).await,
            }
        })
    }

    fn get_db(&self) -> i64 {
        match self {
            RedisConnection::One(one) => one.get_db(),
            RedisConnection::Cluster(_) => 0,
            RedisConnection::Sentinel(sentinel) => sentinel.db(),
        }
    }
}
