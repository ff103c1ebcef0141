//! A run with its JSON, apart from each other: a long one takes milliseconds to parse or to
//! serialize, which a worker with other requests does elsewhere.

use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use uuid::Uuid;

use super::run::{LabRun, LabRunState, RunProgress};
use super::store::{json, prune};
use holdfast_shop::Error;
use holdfast_shop::db::Pool;

/// A run as it was read.
#[derive(Debug)]
pub struct StoredRun {
    pub id: Uuid,
    pub state: LabRunState,
    pub from_file: bool,
    replica: Option<String>,
    position: Option<i64>,
    created_at: OffsetDateTime,
    wanted: String,
    progress: String,
    outcome: Option<String>,
}

impl StoredRun {
    /// Returns the length of its JSON in bytes.
    pub fn length(&self) -> usize {
        self.progress.len() + self.outcome.as_ref().map_or(0, String::len)
    }

    pub fn is_race(&self) -> bool {
        self.replica.is_some()
    }

    pub fn parse(self) -> Result<LabRun, Error> {
        let mut progress: RunProgress = parse(&self.progress)?;
        if self.state.is_over() {
            // The result has them.
            progress.lanes.clear();
        }

        Ok(LabRun {
            id: self.id,
            state: self.state,
            replica: self.replica,
            request: parse(&self.wanted)?,
            progress,
            position: self.position,
            from_file: self.from_file,
            created_at: self.created_at,
            outcome: self.outcome.as_deref().map(parse).transpose()?.unwrap_or_default(),
        })
    }
}

pub async fn find(pool: &Pool, id: Uuid) -> Result<Option<LabRun>, Error> {
    find_stored(pool, id).await?.map(StoredRun::parse).transpose()
}

pub async fn find_stored(pool: &Pool, id: Uuid) -> Result<Option<StoredRun>, Error> {
    let run = sqlx::query_as!(
        StoredRun,
        r#"select id, lab_run_state(run) as "state!: LabRunState", from_file, replica,
                  case when state = 'queued' then lab_queue_position(run) end as position,
                  created_at, wanted::text as "wanted!", progress::text as "progress!",
                  outcome::text
             from lab_runs run where id = $1"#,
        id,
    );
    Ok(run.fetch_optional(&mut *pool.acquire().await?).await?)
}

/// A run that was executed elsewhere, with the JSON that is stored.
#[derive(Debug)]
pub struct ImportedRun {
    pub run: LabRun,
    progress: String,
    outcome: String,
}

impl ImportedRun {
    pub fn new(run: LabRun) -> Result<Self, Error> {
        let (progress, outcome) = (text(&run.progress)?, text(&run.outcome)?);
        Ok(Self { run, progress, outcome })
    }

    /// Returns the length of its JSON in bytes.
    pub fn length(&self) -> usize {
        self.progress.len() + self.outcome.len()
    }

    /// Stores it; returns `false` if its id exists.
    pub async fn store(&self, pool: &Pool) -> Result<bool, Error> {
        let mut connection = pool.acquire().await?;
        let stored = sqlx::query!(
            "insert into lab_runs
                 (id, wanted, state, progress, outcome, created_at, ended_at, from_file)
             values ($1, $2, $3, $4::text::jsonb, $5::text::jsonb, $6, now(), true)
             on conflict (id) do nothing",
            self.run.id,
            json(&self.run.request)?,
            self.run.state as LabRunState,
            self.progress,
            self.outcome,
            self.run.created_at,
        )
        .execute(&mut *connection)
        .await?;

        prune(&mut connection).await?;
        Ok(stored.rows_affected() == 1)
    }
}

/// Stores a run that was executed elsewhere; returns `false` if its id exists.
pub async fn import(pool: &Pool, run: &LabRun) -> Result<bool, Error> {
    ImportedRun::new(run.clone())?.store(pool).await
}

fn text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Bug(format!("no JSON to store: {error}")))
}

fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::Bug(format!("stored JSON: {error}")))
}
