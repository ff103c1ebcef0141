//! The frames of runs that are followed: read from Postgres and serialized once per replica,
//! however many follow the run there.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Bytes;
use moka::future::Cache;
use uuid::Uuid;

use super::offload::offload;
use super::problems::Problem;
use holdfast_base::messages::Language;
use holdfast_lab::store::{self, RunRevision, StoredRun};
use holdfast_shop::Error;
use holdfast_shop::db::Pool;

/// Less than the interval at which a stream asks.
const REVISION_TTL: Duration = Duration::from_millis(90);
/// For those whose turn to ask comes a little later.
const FRAME_TTL: Duration = Duration::from_secs(2);
const MAX_FRAMES: u64 = 64;

type FrameKey = (Uuid, RunRevision, Language);

/// A `run` event with the whole run.
#[derive(Debug, Clone)]
pub struct Frame {
    pub event: Bytes,
    pub is_over: bool,
}

#[derive(Debug)]
pub struct RunFrames {
    revisions: Cache<Uuid, Option<RunRevision>>,
    frames: Cache<FrameKey, Option<Frame>>,
}

impl Default for RunFrames {
    fn default() -> Self {
        Self {
            revisions: Cache::builder().max_capacity(MAX_FRAMES).time_to_live(REVISION_TTL).build(),
            frames: Cache::builder().max_capacity(MAX_FRAMES).time_to_live(FRAME_TTL).build(),
        }
    }
}

impl RunFrames {
    /// Returns the state of a run, at most [`REVISION_TTL`] old; `None` if there is no such run.
    pub async fn revision(&self, pool: &Pool, id: Uuid) -> Result<Option<RunRevision>, Arc<Error>> {
        self.revisions.try_get_with(id, store::revision(pool, id)).await
    }

    /// Returns the frame of a run of that revision, or a newer one; `None` if the run has gone.
    pub async fn frame(
        &self,
        pool: &Pool,
        id: Uuid,
        revision: RunRevision,
        language: Language,
    ) -> Result<Option<Frame>, Arc<Problem>> {
        let read = async {
            let Some(stored) = store::find_stored(pool, id).await? else { return Ok(None) };
            let is_over = stored.state.is_over();
            let json = offload(move || run_json(stored, language)).await??;
            let event = format!("id: {}\nevent: run\ndata: {json}\n\n", revision.number);
            Ok(Some(Frame { event: Bytes::from(event), is_over }))
        };
        self.frames.try_get_with((id, revision, language), read).await
    }
}

/// Serializes a run, to be called off the workers.
pub fn run_json(stored: StoredRun, language: Language) -> Result<String, Problem> {
    let mut run = stored.parse()?.in_language(language);
    // A frame says only that there is a picture, which is fetched once.
    run.progress.lanes.clear();
    let text = serde_json::to_string(&run);
    text.map_err(|error| Error::Bug(format!("no JSON of a run: {error}")).into())
}
