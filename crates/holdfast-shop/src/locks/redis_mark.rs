//! The mark of a Redis: a key by which replicas find out whether they lock in the same one.
//!
//! Guarantees: the key exists only where a replica has set it, and under the prefix of its locks,
//! so that another server, another database of a server, or another prefix lacks it. A Redis that
//! lost its data lacks it, too, until a running replica sets it again. Of the nodes of a quorum,
//! those that do not respond are not compared, if a majority does.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::Redis;
use holdfast_lock::redis::Error;
use redis::{Cmd, cmd};
use uuid::Uuid;

use super::{Lock, ShopLocks};

const TTL: Duration = Duration::from_hours(24);

#[derive(Debug)]
pub struct RedisMark {
    servers: Vec<Redis>,
    key: String,
}

impl RedisMark {
    pub fn new(locks: &ShopLocks, lock: Lock, id: Uuid) -> Self {
        let prefix = &locks.leases().settings().key_prefix;
        Self { servers: locks.servers(lock), key: format!("{prefix}mark:{id}") }
    }

    /// Returns whether all servers that respond have the mark. Fails if too few respond.
    pub async fn is_set(&self) -> Result<bool, Error> {
        let responses = self.on_each(cmd("EXISTS").arg(&self.key)).await?;
        Ok(responses.into_iter().all(|exists| exists))
    }

    /// Sets the mark, or renews it. Fails if too few servers respond.
    pub async fn set(&self) -> Result<(), Error> {
        let mut set = cmd("SET");
        set.arg(&self.key).arg(1).arg("EX").arg(TTL.as_secs());
        self.on_each(&set).await.map(drop)
    }

    /// Returns the responses, if more than half of the servers respond.
    async fn on_each(&self, command: &Cmd) -> Result<Vec<bool>, Error> {
        let requests = self.servers.iter().map(|server| server.query(command.clone()));
        let mut responses = Vec::new();
        let mut failure = None;
        for response in join_all(requests).await {
            match response {
                Ok(response) => responses.push(response),
                Err(error) => failure = Some(error),
            }
        }

        match failure {
            // A minority may be down, as for the locks themselves.
            Some(error) if responses.len() <= self.servers.len() / 2 => Err(error),
            _ => Ok(responses),
        }
    }
}
