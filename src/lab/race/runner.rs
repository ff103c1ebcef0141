//! The races of one replica: at most [`MAX_RUNNING`] run, at most [`MAX_QUEUED`] wait in order of
//! arrival, and further ones are rejected. Each race runs to its end, also if its visitor leaves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use uuid::Uuid;

use super::buyers::{BuyerTokens, Buyers, Peer};
use super::execute::{self, RACE_TIMEOUT};
use super::model::{Race, RaceRequest, RaceResult, RaceState};
use super::store::{self, MAX_KEPT_RACES};
use crate::shop::{Error, Shop};

/// A race of 200 buyers occupies the cores; a queue of them must not stop the shop.
const MAX_RUNNING: usize = 2;
const MAX_QUEUED: usize = 64;
/// Upper bound of a race with the creation of its item and buyers, and its audit.
const TOTAL_TIMEOUT: Duration = RACE_TIMEOUT.saturating_add(Duration::from_secs(4));

/// Runs the races that one replica accepts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RaceRunner {
    shop: Shop,
    replica: String,
    /// `host:port` of the replicas, or of a balancer in front of them.
    hosts: Arc<[String]>,
    buyers: Arc<Buyers>,
    running: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl RaceRunner {
    pub fn new(shop: &Shop, replica: &str, hosts: Vec<String>) -> Self {
        Self {
            shop: shop.clone(),
            replica: replica.to_owned(),
            hosts: hosts.into(),
            buyers: Arc::new(Buyers::new(&shop.pool)),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            places: Arc::new(Semaphore::new(MAX_RUNNING + MAX_QUEUED)),
        }
    }

    /// Returns the names of the servers that the two buyers order from.
    pub fn servers(&self) -> [String; 2] {
        let host = |number: usize| self.hosts.get(number % self.hosts.len().max(1));
        let port = |host: Option<&String>| {
            host.and_then(|host| host.rsplit(':').next()).unwrap_or_default().to_owned()
        };
        [port(host(0)), port(host(1))]
    }

    /// Runs a valid race and returns it with its result; queues it if too many are running.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if too many are queued; other errors if Postgres does not respond.
    pub async fn run(&self, request: RaceRequest) -> Result<Race, Error> {
        let overloaded = |_| Error::Overloaded("too many races are queued".to_owned());
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(overloaded)?;
        let id = Uuid::now_v7();
        let pool = &self.shop.pool;
        let permit = Arc::clone(&self.running).try_acquire_owned().ok();
        let is_queued = permit.is_none();
        let state = if is_queued { RaceState::Queued } else { RaceState::Running };
        store::insert(pool, id, &self.replica, &request, state).await?;
        let race = self.clone().finish(id, request.clone(), place, permit);
        let ended = self.shop.tasks.spawn(race);
        if !is_queued {
            ended.await.map_err(|error| Error::Bug(format!("a race: {error}")))?;
        }
        let lost = || Error::Bug(format!("race {id} is not stored"));
        store::find(pool, id).await?.ok_or_else(lost)
    }

    /// Waits for its turn, executes the race and stores its result.
    async fn finish(
        self,
        id: Uuid,
        request: RaceRequest,
        _place: OwnedSemaphorePermit,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let turn = Arc::clone(&self.running);
        let _permit = match permit {
            Some(permit) => Some(permit),
            None => turn.acquire_owned().await.ok(),
        };
        let executed = timeout(TOTAL_TIMEOUT, self.execute(id, &request)).await;
        let executed = executed.context("it took too long").and_then(|result| result);
        if let Err(error) = &executed {
            tracing::warn!(%id, error = format!("{error:#}"), "a race failed");
        }
        let pool = &self.shop.pool;
        let stored = store::finish(pool, id, executed.ok().as_ref()).await;
        let pruned = store::prune(pool, MAX_KEPT_RACES).await;
        if let Err(error) = stored.and(pruned) {
            tracing::warn!(%id, %error, "the result of a race could not be stored");
        }
    }

    async fn execute(&self, id: Uuid, request: &RaceRequest) -> anyhow::Result<RaceResult> {
        let mut peers = Vec::with_capacity(self.hosts.len());
        for host in self.hosts.iter() {
            peers.push(Peer::resolve(host).await.with_context(|| format!("no address of {host}"))?);
        }
        ensure!(!peers.is_empty(), "no replica is configured");
        let (result, is_signed_out) = self.attempt(id, &peers, request).await?;
        if !is_signed_out {
            return Ok(result);
        }
        // The start of `holdfast up` ends the sessions of the lab's users.
        self.buyers.forget().await;
        Ok(self.attempt(id, &peers, request).await?.0)
    }

    /// Races once; also returns whether the sessions of the buyers had ended.
    async fn attempt(
        &self,
        id: Uuid,
        peers: &[Peer],
        request: &RaceRequest,
    ) -> anyhow::Result<(RaceResult, bool)> {
        let tokens: BuyerTokens = self.buyers.tokens(usize::from(request.buyers)).await?;
        let sku = execute::create_item(&self.shop, request.stock).await?;
        store::begin(&self.shop.pool, id, &sku).await?;
        let result = execute::execute(&self.shop, peers, &tokens, &sku, request).await?;
        let is_signed_out = result.lanes.iter().any(|lane| lane.result == "unauthenticated");
        Ok((result, is_signed_out))
    }
}
