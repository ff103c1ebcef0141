//! Sends commands to one server, a Cluster, or the current primary behind sentinels.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{Cmd, Pipeline, RedisError, RedisFuture, Value};

use super::cluster::Routed;
use super::sentinel::Sentinel;

/// Time for which other callers get the same error after a failed search for a primary or slot map.
pub(super) const NOT_AGAIN_FOR: Duration = Duration::from_millis(50);

/// A connection to any kind of deployment. Cheap to clone; each call uses a clone of its own.
#[derive(Clone)]
pub(super) enum Connection {
    One(ConnectionManager),
    Cluster(Routed),
    Sentinel(Arc<Sentinel>),
}

/// One command, or several in one round trip.
#[derive(Clone, Copy)]
pub(super) enum Words<'a> {
    Command(&'a Cmd),
    /// The commands, the number of leading replies to skip, and the number of replies to return.
    Pipe(&'a Pipeline, usize, usize),
}

impl Words<'_> {
    pub(super) async fn say(
        self,
        connection: &mut impl ConnectionLike,
    ) -> Result<Vec<Value>, RedisError> {
        match self {
            Words::Command(command) => Ok(vec![connection.req_packed_command(command).await?]),
            Words::Pipe(pipe, offset, count) => {
                connection.req_packed_commands(pipe, offset, count).await
            }
        }
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let words = Words::Command(command);
        Box::pin(async move {
            let mut values = match self {
                Connection::One(one) => return one.send_packed_command(command).await,
                Connection::Cluster(routed) => routed.send(words).await?,
                Connection::Sentinel(sentinel) => sentinel.send(words).await?,
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
        let words = Words::Pipe(pipe, offset, count);
        Box::pin(async move {
            match self {
                Connection::One(one) => one.send_packed_commands(pipe, offset, count).await,
                Connection::Cluster(routed) => routed.send(words).await,
                Connection::Sentinel(sentinel) => sentinel.send(words).await,
            }
        })
    }

    fn get_db(&self) -> i64 {
        match self {
            Connection::One(one) => one.get_db(),
            Connection::Cluster(_) => 0,
            Connection::Sentinel(sentinel) => sentinel.db(),
        }
    }
}

pub(super) fn timed_out() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}
