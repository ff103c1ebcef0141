//! A primary that can change; the sentinels name the current one.
//!
//! Guarantees: after a failover a command goes to the new primary, or fails; no command is sent
//! twice. The sentinels are asked when a connection breaks, a response is missing, or a server
//! reports that it is a replica; the server that they name must confirm that it is the primary.
//!
//! Does not guarantee that an acknowledged write outlives its primary: replication is asynchronous,
//! and a primary that is cut off from its sentinels keeps responding for a while. Then a lock may
//! have two holders, and the fence must reject the stale write.

use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError};
use redis::{ServerErrorKind, Value};

use super::address::replace_host;
use super::request::{CONNECT_TIMEOUT, RedisRequest, in_time};
use super::search::{SearchLock, first_ok};
use super::server::{is_not_logged_in, with_resp3};

pub(super) struct Sentinel {
    sentinels: Vec<ConnectionInfo>,
    name: String,
    /// Connection settings of the primary, except its address.
    template: ConnectionInfo,
    primary: Mutex<Option<Arc<Primary>>>,
    search_lock: SearchLock,
}

struct Primary {
    address: ConnectionInfo,
    connection: MultiplexedConnection,
}

impl Sentinel {
    pub(super) fn new(
        sentinels: Vec<ConnectionInfo>,
        name: String,
        template: ConnectionInfo,
    ) -> Self {
        Self {
            sentinels,
            name,
            template,
            primary: Mutex::default(),
            search_lock: SearchLock::default(),
        }
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        request: RedisRequest<'_>,
    ) -> Result<Vec<Value>, RedisError> {
        let mut used = None;
        let response = in_time(async {
            let primary = used.insert(self.primary(None).await?);
            request.send_on(&mut primary.connection.clone()).await
        })
        .await;

        if let Some(primary) = used {
            let (is_broken, is_suspect) = match &response {
                Ok(values) => (values.iter().any(is_not_logged_in), values.iter().any(is_replica)),
                // Also without a response: the sentinels may have made another one the primary.
                Err(error) => (error.is_unrecoverable_error(), true),
            };
            if is_broken {
                self.discard(&primary);
            }
            if is_broken || is_suspect {
                self.refresh_in_background(primary);
            }
        }
        response
    }

    pub(super) async fn primary_address(&self) -> Result<ConnectionInfo, RedisError> {
        Ok(self.primary(None).await?.address.clone())
    }

    fn discard(&self, broken: &Arc<Primary>) {
        let mut primary = self.primary.lock();
        if primary.as_ref().is_some_and(|primary| Arc::ptr_eq(primary, broken)) {
            *primary = None;
        }
    }

    /// Returns the primary; asks the sentinels if it is unknown or `suspect`.
    async fn primary(&self, suspect: Option<&Arc<Primary>>) -> Result<Arc<Primary>, RedisError> {
        if let Some(primary) = self.other_than(suspect) {
            return Ok(primary);
        }
        self.search_lock.search(|| self.other_than(suspect), self.fetch_from_any()).await
    }

    fn other_than(&self, suspect: Option<&Arc<Primary>>) -> Option<Arc<Primary>> {
        let current = self.primary.lock().clone()?;
        let is_suspect = suspect.is_some_and(|suspect| Arc::ptr_eq(&current, suspect));
        (!is_suspect).then_some(current)
    }

    /// Asks all sentinels; uses the first primary that confirms its role.
    async fn fetch_from_any(&self) -> Result<Arc<Primary>, RedisError> {
        let no_sentinels = RedisError::from((ErrorKind::Io, "there are no sentinels"));
        let requests = self.sentinels.iter().map(|sentinel| self.ask(sentinel));
        let primary = Arc::new(first_ok(requests, no_sentinels).await?);
        *self.primary.lock() = Some(primary.clone());
        Ok(primary)
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> Result<Primary, RedisError> {
        let mut sentinel = connect(sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let response: Option<(String, u16)> = in_time(command.query_async(&mut sentinel)).await?;
        let Some((host, port)) = response else {
            let why = "the sentinel knows no master of that name";
            return Err((ErrorKind::InvalidClientConfig, why, self.name.clone()).into());
        };

        let address = replace_host(self.template.addr(), host, port);
        let address = self.template.clone().set_addr(address);
        let mut connection = connect(&with_resp3(address.clone())).await?;
        // During a failover, a sentinel may name the old primary, or one that is not promoted yet.
        let role: Vec<Value> = in_time(redis::cmd("ROLE").query_async(&mut connection)).await?;
        let is_primary = matches!(role.first(), Some(Value::BulkString(role)) if role == b"master");
        if !is_primary {
            return Err(
                (ErrorKind::Io, "the server that the sentinel names is not the primary").into()
            );
        }
        Ok(Primary { address, connection })
    }

    fn refresh_in_background(self: &Arc<Self>, suspect: Arc<Primary>) {
        let sentinel = self.clone();
        tokio::spawn(async move {
            if let Err(error) = sentinel.primary(Some(&suspect)).await {
                tracing::debug!(%error, "no sentinel knows a primary");
            }
        });
    }
}

async fn connect(address: &ConnectionInfo) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None);
    Client::open(address.clone())?.get_multiplexed_async_connection_with_config(&config).await
}

/// Returns whether the server reports that it is a replica: old versions in a script's error.
fn is_replica(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    matches!(error.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
        || error.details().is_some_and(|details| details.contains("READONLY"))
}
