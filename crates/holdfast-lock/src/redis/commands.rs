//! Commands of the caller's own on the connection of the locks (feature `redis-api`). They have
//! types of the crate `redis`, so a new major version of that crate is one of this module.

use redis::{Cmd, FromRedisValue, Pipeline, ScriptInvocation};

use super::client::Redis;
use super::error::Error;

impl Redis {
    /// Sends one command.
    ///
    /// # Errors
    /// If the server does not respond within 0.8 s, or reports an error; at once, without sending
    /// it, for 0.25 s after another command had no response (in a Cluster: of the same node, until
    /// that responds).
    ///
    /// # Cancel safety
    /// Dropped before the first poll, nothing is sent. A command that was sent is executed.
    pub async fn query<T>(&self, command: Cmd) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        self.send(command).await
    }

    /// Sends several commands in one round trip. Fails, and is cancel safe, as [`Redis::query`].
    pub async fn query_pipeline<T>(&self, commands: Pipeline) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        self.send_pipeline(commands).await
    }

    /// Executes a script. Fails, and is cancel safe, as [`Redis::query`].
    pub async fn run_script<T>(&self, call: ScriptInvocation<'static>) -> Result<T, Error>
    where
        T: FromRedisValue,
    {
        self.send_script(call).await
    }
}
