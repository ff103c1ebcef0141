//! Whether a replica may run beside the others: it must exclude them, and they it.
//!
//! The database records the family of strategies in use. A replica of another family is refused,
//! unless it is the only one and may change the record (`--change-lock`).
//!
//! A family that excludes by Redis alone needs one Redis: the first replica sets a mark in it, and
//! its random id is recorded; each further one must find that mark in its own. One that does not
//! waits for [`MARK_TIMEOUT`], in which running replicas renew the mark of a Redis that lost its
//! data. Then a replica that is the only one sets a new mark; any other is refused.
//!
//! A replica that lost its session in Postgres runs on, and registers again within about
//! [`INTERVAL`]. Until then a change of the lock does not see it; if it is refused then, it ends.
//! Tests: `tests/it/lock_family.rs`.

use std::time::Duration;

use holdfast_lock::redis::Error as RedisError;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::db::{self, RecordedFamily, ReplicaSession};
use crate::locks::{Lock, RedisMark, ShopLocks};
use crate::strategy::{Family, STRATEGIES};
use crate::{Shop, Strategy};

/// Interval at which a running replica tests its session and renews the mark.
const INTERVAL: Duration = Duration::from_secs(2);
const MARK_TIMEOUT: Duration = Duration::from_secs(5);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the lock {own} does not exclude {recorded}, which the database records as the lock of this \
         shop: together they would oversell. Use {}. To change the lock, stop all replicas, then \
         start one with `holdfast serve --change-lock`",
        allowed_names(recorded)
    )]
    OtherFamily { own: String, recorded: String },
    #[error(
        "the lock can't be changed from {recorded} to {own} while other replicas run: {}. Stop them \
         first", others.join(", ")
    )]
    OthersRun { own: String, recorded: String, others: Vec<String> },
    #[error(
        "other replicas ({}) lock with another Redis: the one of REDIS_URL (for redlock, one of \
         REDLOCK_URLS) lacks their mark under the prefix {prefix}. Two of them do not exclude each \
         other under {own}. Use theirs; or stop all replicas before one starts with another Redis",
        others.join(", ")
    )]
    OtherRedis { own: String, prefix: String, others: Vec<String> },
    #[error(
        "the lock {name} is unsafe for the shop's own items: {hazard}. Use another one, such as \
         batched; or add --unsafe-lock (HOLDFAST_UNSAFE_LOCK=on)"
    )]
    Unsafe { name: &'static str, hazard: &'static str },
    #[error("the lock can't be compared with that of the other replicas: {0}")]
    Postgres(#[from] db::Error),
    #[error("the mark of Redis can't be read or set: {0}")]
    Redis(#[from] RedisError),
    #[error("Postgres or Redis did not respond in time when the lock was compared")]
    TimedOut,
}

impl Error {
    fn is_temporary(&self) -> bool {
        matches!(self, Error::Postgres(_) | Error::Redis(_) | Error::TimedOut)
    }
}

pub fn check_hazard(strategy: &Strategy, is_allowed: bool) -> Result<(), Error> {
    let (name, Some(hazard)) = (strategy.name, strategy.hazard()) else { return Ok(()) };
    if !is_allowed {
        return Err(Error::Unsafe { name, hazard });
    }
    tracing::error!("UNSAFE LOCK {name}, as --unsafe-lock allows: {hazard}");
    Ok(())
}

#[derive(Debug, Clone)]
pub struct Candidate {
    database_url: String,
    replica: String,
    strategy: &'static Strategy,
    locks: ShopLocks,
}

#[derive(Debug)]
pub struct Registration {
    candidate: Candidate,
    /// `None` once it has ended.
    session: Option<ReplicaSession>,
    mark: Option<RedisMark>,
}

impl Registration {
    /// Registers the replica, and records its family if none is recorded. With `change_lock` it
    /// replaces the record, if no other replica runs.
    pub async fn new(candidate: Candidate, change_lock: bool) -> Result<Self, Error> {
        let mark_at = Instant::now() + MARK_TIMEOUT;
        loop {
            let may_mark = change_lock || Instant::now() >= mark_at;
            let attempt = timeout(ATTEMPT_TIMEOUT, candidate.register(change_lock, may_mark));
            match attempt.await.map_err(|_| Error::TimedOut)?? {
                Some((session, mark)) => {
                    return Ok(Self { candidate, session: Some(session), mark });
                }
                None => sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Keeps the replica registered while it runs. Returns when it must end.
    pub async fn keep(mut self) -> Error {
        loop {
            sleep(INTERVAL).await;

            // A Redis that is away is reported elsewhere. It may lose its data while Postgres is
            // away.
            if let Some(mark) = &self.mark {
                let _ = mark.set().await;
            }

            if let Some(session) = &mut self.session
                && session.is_alive().await
            {
                continue;
            }

            // Closed first: the new session would find it among those of the others.
            self.session = None;
            match Self::new(self.candidate.clone(), false).await {
                Ok(again) => {
                    tracing::info!("this replica is registered again: its session had ended");
                    self = again;
                }
                Err(error) if error.is_temporary() => {}
                Err(refusal) => return refusal,
            }
        }
    }
}

impl Candidate {
    pub fn new(database_url: &str, replica: &str, shop: &Shop) -> Self {
        Self {
            database_url: database_url.to_owned(),
            replica: replica.to_owned(),
            strategy: shop.strategy,
            locks: shop.locks.clone(),
        }
    }

    async fn register(
        &self,
        change_lock: bool,
        may_mark: bool,
    ) -> Result<Option<(ReplicaSession, Option<RedisMark>)>, Error> {
        let (mut session, others) =
            ReplicaSession::register(&self.database_url, &self.replica).await?;

        if let Some(recorded) = session.recorded().await? {
            if recorded.family != self.family() {
                let own = self.name();
                let recorded = recorded.strategy;
                if !change_lock {
                    return Err(Error::OtherFamily { own, recorded });
                }
                if !others.is_empty() {
                    return Err(Error::OthersRun { own, recorded, others });
                }
            } else if let Some(mark) = self.find_mark(recorded.redis_mark).await? {
                session.end_turn().await?;
                return Ok(Some((session, mark)));
            } else if !may_mark {
                session.leave().await?;
                return Ok(None);
            } else if !others.is_empty() {
                let prefix = self.locks.leases().settings().key_prefix.clone();
                return Err(Error::OtherRedis { own: self.name(), prefix, others });
            }
        }

        let mark = self.record(&mut session).await?;
        Ok(Some((session, mark)))
    }

    /// Returns the mark if the Redis has it; `Some(None)` if the family needs none.
    async fn find_mark(&self, id: Option<Uuid>) -> Result<Option<Option<RedisMark>>, Error> {
        let Some(lock) = self.lock_in_redis() else { return Ok(Some(None)) };
        let Some(id) = id else { return Ok(None) };
        let mark = RedisMark::new(&self.locks, lock, id);
        Ok(mark.is_set().await?.then_some(Some(mark)))
    }

    /// Records the family, and marks its Redis, if it excludes by Redis alone.
    async fn record(&self, session: &mut ReplicaSession) -> Result<Option<RedisMark>, Error> {
        let id = Uuid::new_v4();
        let lock = self.lock_in_redis();

        // The mark first: a recorded id without its mark would keep further replicas waiting.
        let mark = lock.map(|lock| RedisMark::new(&self.locks, lock, id));
        if let Some(mark) = &mark {
            mark.set().await?;
        }

        let family = self.family();
        let strategy = self.name();
        tracing::info!("the database records the lock {strategy} (family {family})");
        let redis_mark = mark.is_some().then_some(id);
        session.record(&RecordedFamily { family, strategy, redis_mark }).await?;
        session.end_turn().await?;
        Ok(mark)
    }

    fn family(&self) -> String {
        self.strategy.family().name().to_owned() + &self.nodes()
    }

    fn name(&self) -> String {
        self.strategy.name.to_owned() + &self.nodes()
    }

    /// Returns the number of servers, if there are several: a majority of three and one of five do
    /// not exclude each other.
    fn nodes(&self) -> String {
        match self.lock_in_redis().map(|lock| self.locks.servers(lock).len()) {
            Some(nodes) if nodes > 1 => format!(" on {nodes} servers"),
            _ => String::new(),
        }
    }

    fn lock_in_redis(&self) -> Option<Lock> {
        self.strategy.lock_in_redis().filter(|_| self.strategy.family() != Family::Postgres)
    }
}

fn allowed_names(recorded: &str) -> String {
    let Some(strategy) = Strategy::named(recorded) else { return recorded.to_owned() };
    let family = STRATEGIES.iter().filter(|other| other.is_compatible_with(strategy));
    let allowed = family.filter(|other| other.hazard().is_none() || other.name == recorded);
    allowed.map(|other| other.name).collect::<Vec<_>>().join(", ")
}
