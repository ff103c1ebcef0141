//! The races of one replica, those with a pause apart: of each kind at most [`MAX_RUNNING`] run, at
//! most [`MAX_QUEUED`] wait in order of arrival, and further ones are rejected. Each race runs to
//! its end, also if its visitor leaves.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::execute::{
    CROWD_END, MAX_QUEUED, MAX_RUNNING, Peer, RACE_TIMEOUT, RunningRace, TOTAL_TIMEOUT, create_item,
};
use super::model::RaceRequest;
use crate::cluster::begin_sessions;
use crate::run::{LabRunState, RunResult};
use crate::store::{self, StoredRun, json};
use holdfast_base::messages::message;
use holdfast_shop::db::Pool;
use holdfast_shop::store::purge_lab_item;
use holdfast_shop::users::LAB_NAME_PREFIX;
use holdfast_shop::{Error, Shop, Sku};

pub const MAX_KEPT_RACES: i64 = 2_000;
/// Old races that each race tries to delete.
const TRIED_PER_RACE: i64 = 4;

/// The races of a kind that run, and their places, with those that wait.
#[derive(Debug, Clone)]
struct Turns {
    running: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Turns {
    fn new() -> Self {
        Self {
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            places: Arc::new(Semaphore::new(MAX_RUNNING + MAX_QUEUED)),
        }
    }
}

#[derive(Debug, Clone)]
pub struct RaceRunner {
    shop: Shop,
    replica: String,
    /// `host:port` of the replicas, or of a balancer in front of them.
    hosts: Arc<[String]>,
    /// Session tokens of the buyers, users of the lab that all races share. They pay nothing: their
    /// orders expire.
    tokens: Arc<Mutex<Vec<String>>>,
    plain: Turns,
    /// Of races with a pause: they take longer, and no other one waits for them.
    pausing: Turns,
    stop: CancellationToken,
}

impl RaceRunner {
    pub fn new(shop: &Shop, replica: &str, hosts: Vec<String>, stop: &CancellationToken) -> Self {
        Self {
            shop: shop.clone(),
            replica: replica.to_owned(),
            hosts: hosts.into(),
            tokens: Arc::default(),
            plain: Turns::new(),
            pausing: Turns::new(),
            stop: stop.clone(),
        }
    }

    /// Returns the names of the servers that the two buyers order from.
    pub fn servers(&self) -> [String; 2] {
        let [first, second] = [0, 1].map(|number| {
            let host = self.hosts.get(number % self.hosts.len().max(1));
            host.and_then(|host| host.rsplit_once(':')).unwrap_or_default()
        });

        // Replicas on one machine differ by their port, others by their name.
        let servers = if first.0 == second.0 { [first.1, second.1] } else { [first.0, second.0] };
        servers.map(str::to_owned)
    }

    /// Runs a valid race and returns it as it is stored, with its result; queues it if too many
    /// are running.
    pub async fn run(&self, request: RaceRequest) -> Result<StoredRun, Error> {
        let Turns { running, places } = self.turns(&request);
        let place = places
            .try_acquire_owned()
            .map_err(|_| Error::Overloaded("too many races are queued".to_owned()))?;

        let id = Uuid::now_v7();
        let pool = &self.shop.pool;
        let permit = running.try_acquire_owned().ok();
        let is_queued = permit.is_none();
        let state = if is_queued { LabRunState::Queued } else { LabRunState::Running };
        insert(pool, id, &self.replica, &request, state).await?;

        // In a task of its own: the race goes on if its visitor leaves.
        let race = self.clone().finish(id, request.clone(), place, permit);
        let ended = self.shop.tasks.spawn(race);
        if !is_queued {
            ended.await.map_err(|error| Error::Bug(format!("a race: {error}")))?;
        }

        let stored = store::find_stored(pool, id).await?;
        stored.ok_or_else(|| Error::Bug(format!("race {id} is not stored")))
    }

    fn turns(&self, request: &RaceRequest) -> Turns {
        if request.pause { self.pausing.clone() } else { self.plain.clone() }
    }

    async fn finish(
        self,
        id: Uuid,
        request: RaceRequest,
        _place: OwnedSemaphorePermit,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let _permit = match permit {
            Some(permit) => Some(permit),
            None => self.turns(&request).running.acquire_owned().await.ok(),
        };

        let executed = match self.stop.is_cancelled() {
            true => Err(anyhow!("the replica stops")),
            false => {
                let executed = timeout(TOTAL_TIMEOUT, self.execute(id, &request)).await;
                executed.context("it took too long").flatten()
            }
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
        self.tokens.lock().await.clear();
        purge_lab_item(&self.shop.pool, &sku, sku.as_str()).await?;
        Ok(self.attempt(id, &peers, request).await?.0)
    }

    async fn attempt(
        &self,
        id: Uuid,
        peers: &[Peer],
        request: &RaceRequest,
    ) -> anyhow::Result<(RunResult, Sku)> {
        let began = Instant::now();
        let tokens = self.tokens(usize::from(request.buyers)).await?;
        let sku = create_item(&self.shop, request.stock).await?;
        start(&self.shop.pool, id, &sku).await?;

        let mut deadline = Instant::now() + RACE_TIMEOUT;
        if request.buyers > 2 {
            deadline = deadline.max(began + CROWD_END);
        }
        let race = RunningRace { peers, tokens: &tokens, sku: &sku, request, deadline };
        let result = race.execute(&self.shop).await?;
        Ok((result, sku))
    }

    /// Returns the session tokens of `count` buyers; begins the sessions that are missing.
    async fn tokens(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut tokens = self.tokens.lock().await;
        if tokens.len() < count {
            let missing = (tokens.len() + 1..=count)
                .map(|number| format!("{LAB_NAME_PREFIX}buyer-{number:03}"));
            let begun = begin_sessions(&self.shop.pool, missing, false).await;
            let begun = begun.context("the sessions of the buyers")?;
            tokens.extend(begun.into_iter().map(|(_, token)| token));
        }
        Ok(tokens.iter().take(count).cloned().collect())
    }
}

async fn insert(
    pool: &Pool,
    id: Uuid,
    replica: &str,
    request: &RaceRequest,
    state: LabRunState,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into lab_runs (id, replica, wanted, state) values ($1, $2, $3, $4)",
        id,
        replica,
        json(&request.to_run())?,
        state as LabRunState,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Records that a race sells this item from now on.
async fn start(pool: &Pool, id: Uuid, sku: &Sku) -> Result<(), Error> {
    sqlx::query!(
        "update lab_runs set state = 'running', sku = $2, frame = frame + 1 where id = $1",
        id,
        sku.as_str(),
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Deletes some of the races beyond `kept`, with their items. Keeps a race whose item has a pending
/// order or belongs to an item of a newer race, and one that may still be running.
pub async fn prune(pool: &Pool, kept: i64) -> Result<(), Error> {
    // In random order: those that must be kept do not keep the others.
    let old = sqlx::query!(
        r#"select race.id, race.sku as "sku: Sku",
                  'lab-' || replace(oldest.id::text, '-', '') as "newest!"
             from lab_runs race
             join (select id from lab_runs where replica is not null
                    order by id desc offset $1 limit 1) as oldest on race.id < oldest.id
            where race.replica is not null and lab_run_state(race) in ('done', 'failed')
            order by random() limit $2"#,
        kept - 1,
        TRIED_PER_RACE,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    for race in old {
        let is_free = match race.sku {
            Some(sku) => purge_lab_item(pool, &sku, &race.newest).await?,
            None => true,
        };
        if is_free {
            sqlx::query!("delete from lab_runs where id = $1", race.id)
                .execute(&mut *pool.acquire().await?)
                .await?;
        }
    }
    Ok(())
}
