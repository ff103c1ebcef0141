//! The throw-away buyers of races, and their HTTP requests to the replicas.
//!
//! The buyers are users of the lab, shared by all races. Each process begins sessions for them when
//! a race first needs them. They pay nothing: their orders expire.

use std::io;
use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::lookup_host;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::db::Pool;
use crate::lab::cluster::begin_session;
use crate::lab::headers::LabHeaders;
use crate::lab::request::{LabResponse, command_headers, format_request, order_of};
use crate::load;
use crate::probe::PausedRequest;
use crate::shop::Sku;
use crate::shop::users::LAB_NAME_PREFIX;

/// A replica, as the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub host: String,
    pub address: SocketAddr,
}

impl Peer {
    pub async fn resolve(host: &str) -> io::Result<Self> {
        let address = lookup_host(host).await?.next();
        let address = address.ok_or_else(|| io::Error::other(format!("{host} has no address")))?;
        Ok(Self { host: host.to_owned(), address })
    }

    async fn send(
        &self,
        target: (&str, &str),
        token: &str,
        headers: &[String],
        body: &str,
    ) -> io::Result<(u16, Vec<u8>)> {
        let request = format_request(&self.host, target, token, headers, body);
        load::send(self.address, &request).await
    }

    /// Orders one unit under the request id `id`.
    pub async fn order(
        &self,
        token: &str,
        sku: &Sku,
        headers: &LabHeaders,
        id: Uuid,
    ) -> io::Result<LabResponse> {
        let headers = command_headers(headers, id, Uuid::new_v4());
        let body = order_of(&[(sku, 1)]);
        let response = self.send(("POST", "/api/orders"), token, &headers, &body).await?;
        Ok(LabResponse::new(Some(response)))
    }

    /// Lists the requests of the token's user that the replica has paused.
    pub async fn paused(&self, token: &str) -> io::Result<Vec<PausedRequest>> {
        let (_, body) = self.send(("GET", "/api/race/paused"), token, &[], "").await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn resume(&self, token: &str, id: Uuid) -> io::Result<()> {
        let path = format!("/api/race/paused/{id}");
        self.send(("POST", &path), token, &[], "").await.map(drop)
    }
}

#[derive(Debug, Default)]
pub struct Buyers {
    tokens: Mutex<Vec<String>>,
}

impl Buyers {
    /// Returns the session tokens of `count` buyers; begins the sessions that are missing.
    pub async fn tokens(&self, pool: &Pool, count: usize) -> anyhow::Result<Vec<String>> {
        let mut tokens = self.tokens.lock().await;
        for number in tokens.len() + 1..=count {
            let name = format!("{LAB_NAME_PREFIX}buyer-{number:03}");
            let session = begin_session(pool, &name, false).await;
            tokens.push(session.with_context(|| format!("a session of {name}"))?.1);
        }
        Ok(tokens.iter().take(count).cloned().collect())
    }

    /// Forgets all sessions, after one was found to have ended.
    pub async fn forget(&self) {
        self.tokens.lock().await.clear();
    }
}
