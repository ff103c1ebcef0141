//! The races of one replica: at most [`MAX_RUNNING`] run, at most [`MAX_QUEUED`] wait in order of
//! arrival, and further ones are rejected. Each race runs to its end, also if its visitor leaves.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::buyers::{Buyers, Peer};
use super::execute::{self, MAX_QUEUED, MAX_RUNNING, TOTAL_TIMEOUT};
use super::model::{Race, RaceRequest};
use super::store::{MAX_KEPT_RACES, insert, prune, start};
use crate::lab::run::{LabRunState, RunResult};
use crate::lab::store;
use crate::messages::message;
use crate::shop::store::purge_lab_item;
use crate::shop::{Error, Shop, Sku};

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
    stop: CancellationToken,
}

impl RaceRunner {
    pub fn new(shop: &Shop, replica: &str, hosts: Vec<String>, stop: &CancellationToken) -> Self {
        Self {
            shop: shop.clone(),
            replica: replica.to_owned(),
            hosts: hosts.into(),
            buyers: Arc::default(),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            places: Arc::new(Semaphore::new(MAX_RUNNING + MAX_QUEUED)),
            stop: stop.clone(),
        }
    }

    /// Returns the names of the servers that the two buyers order from.
    pub fn servers(&self) -> [String; 2] {
        let server = |number: usize| {
            let host = self.hosts.get(number % self.hosts.len().max(1));
            host.and_then(|host| host.rsplit_once(':')).unwrap_or_default()
        };
        // Replicas on one machine differ by their port, others by their name.
        let (first, second) = (server(0), server(1));
        if first.0 == second.0 {
            [first.1.to_owned(), second.1.to_owned()]
        } else {
            [first.0.to_owned(), second.0.to_owned()]
        }
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
        let state = if is_queued { LabRunState::Queued } else { LabRunState::Running };
        insert(pool, id, &self.replica, &request, state).await?;
        let race = self.clone().finish(id, request.clone(), place, permit);
        let ended = self.shop.tasks.spawn(race);
        if !is_queued {
            ended.await.map_err(|error| Error::Bug(format!("a race: {error}")))?;
        }
        let lost = || Error::Bug(format!("race {id} is not stored"));
        store::find(pool, id).await?.map(Race::from).ok_or_else(lost)
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
        let executed = match self.stop.is_cancelled() {
            true => Err(anyhow!("the replica stops")),
            false => timeout(TOTAL_TIMEOUT, self.execute(id, &request))
                .await
                .context("it took too long")
                .and_then(|result| result),
        };
        let (state, outcome) = match executed {
            Ok(outcome) => (LabRunState::Done, outcome),
            Err(error) => {
                let verdict = message!("run-failed", error = format!("{error:#}"));
                tracing::warn!(%id, verdict = verdict.english(), "a race failed");
                let verdict = Some(verdict.into());
                (LabRunState::Failed, RunResult { verdict, ..RunResult::default() })
            }
        };
        let pool = &self.shop.pool;
        let stored = store::finish(pool, id, state, &outcome).await;
        let pruned = prune(pool, MAX_KEPT_RACES).await;
        if let Err(error) = stored.and(pruned) {
            tracing::warn!(%id, %error, "the result of a race could not be stored");
        }
    }

    async fn execute(&self, id: Uuid, request: &RaceRequest) -> anyhow::Result<RunResult> {
        let mut peers = Vec::with_capacity(self.hosts.len());
        for host in self.hosts.iter() {
            peers.push(Peer::resolve(host).await.with_context(|| format!("no address of {host}"))?);
        }
        ensure!(!peers.is_empty(), "no replica is configured");
        let (result, sku) = self.attempt(id, &peers, request).await?;
        if result.lanes.iter().all(|lane| lane.status != Some(401)) {
            return Ok(result);
        }
        // The start of `holdfast up` ends the sessions of the lab's users.
        self.buyers.forget().await;
        purge_lab_item(&self.shop.pool, &sku, sku.as_str()).await?;
        Ok(self.attempt(id, &peers, request).await?.0)
    }

    /// Races once, for an item of its own.
    async fn attempt(
        &self,
        id: Uuid,
        peers: &[Peer],
        request: &RaceRequest,
    ) -> anyhow::Result<(RunResult, Sku)> {
        let tokens = self.buyers.tokens(&self.shop.pool, usize::from(request.buyers)).await?;
        let sku = execute::create_item(&self.shop, request.stock).await?;
        start(&self.shop.pool, id, &sku).await?;
        let result = execute::execute(&self.shop, peers, &tokens, &sku, request).await?;
        Ok((result, sku))
    }
}
