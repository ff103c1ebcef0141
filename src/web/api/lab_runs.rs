//! Runs of the lab: requests them, reads them, streams them.

use std::time::Duration;

use actix_web::web::{Bytes, Path};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;
use uuid::Uuid;

use super::lists::{Page, page};
use super::responses::json;
use crate::lab::run::{LabRun, RunRequest};
use crate::lab::store::{self, EnqueueResult, RunSummary};
use crate::web::middleware::{Json, LabAdmin, ListParameters, ListQuery, Query, begin_command};
use crate::web::{AppState, HttpResult, Problem, ProblemType, State};

const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Time to wait for a runner: a shop that has just started starts its runner last.
const RUNNER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Polls without a new frame after which a comment is sent, to detect a broken connection.
const POLLS_PER_KEEP_ALIVE: u32 = 50;

/// The id of a requested run.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunId {
    pub id: Uuid,
}

/// Requests a run of a lesson or of a load (admin). Runs are executed one at a time: while another
/// run is in progress, the request is rejected with its id.
#[utoipa::path(post, path = "/api/lab/runs", tag = "lab",
    responses((status = 202, body = RunId), (status = 409)))]
pub async fn create(
    state: State,
    request: HttpRequest,
    _: LabAdmin,
    run: Json<RunRequest>,
) -> HttpResult {
    let run = run.read()?;
    begin_command(&request);
    match queue_run(&state, &run, None).await? {
        Ok(id) => Ok(HttpResponse::Accepted()
            .insert_header(("Location", format!("/api/lab/runs/{id}")))
            .json(RunId { id })),
        Err(other) => {
            let detail = format!("run {other} has not finished");
            Err(Problem::new(ProblemType::Exists, detail).with("run", other.to_string()))
        }
    }
}

/// Validates and queues a run. Returns its id, or as the inner error the id of the run in progress.
///
/// # Errors
/// `invalid-request` for an invalid parameter; `unavailable` if there is no runner.
pub async fn queue_run(
    state: &AppState,
    request: &RunRequest,
    guess: Option<&str>,
) -> Result<Result<Uuid, Uuid>, Problem> {
    if let Some((field, why)) = request.invalid_field() {
        return Err(Problem::field(field, why));
    }
    let end = Instant::now() + RUNNER_TIMEOUT;
    let result = loop {
        match store::enqueue(&state.shop.pool, request, guess).await? {
            EnqueueResult::NoRunner if Instant::now() < end => sleep(FRAME_INTERVAL).await,
            result => break result,
        }
    };
    match result {
        EnqueueResult::Queued(id) => Ok(Ok(id)),
        EnqueueResult::Busy(other) => Ok(Err(other)),
        EnqueueResult::NoRunner => {
            let detail = "no `holdfast up` runs this shop, and lessons and runs pause and kill its \
                          replicas. Run `script/server`, or one lesson with `holdfast lesson \
                          NAME`. The lab's headers and items, and load/, work here too";
            Err(Problem::new(ProblemType::Unavailable, detail))
        }
    }
}

/// Lists the runs, newest first (admin).
#[utoipa::path(get, path = "/api/lab/runs", tag = "lab", params(ListParameters),
    responses((status = 200, body = Page<RunSummary>), (status = 403)))]
pub async fn list(
    state: State,
    request: HttpRequest,
    _: LabAdmin,
    query: Query<ListQuery<Uuid>>,
) -> HttpResult {
    let query = query.read()?;
    let limit = query.limit()?;
    let runs = store::newest(&state.shop.pool, query.after, limit + 1).await?;
    page(&request, runs, limit, |run| run.id)
}

/// Returns a run with its results (admin).
#[utoipa::path(get, path = "/api/lab/runs/{id}", tag = "lab",
    responses((status = 200, body = LabRun), (status = 403)))]
pub async fn read(state: State, _: LabAdmin, id: Path<String>) -> HttpResult {
    json(find_run(&state, &id).await?)
}

pub async fn find_run(state: &AppState, id: &str) -> Result<LabRun, Problem> {
    let not_found = || Problem::not_found(format!("there is no run {id}"));
    let parsed = Uuid::parse_str(id).map_err(|_| not_found())?;
    store::find(&state.shop.pool, parsed).await?.ok_or_else(not_found)
}

/// Streams a run as server-sent events (admin). Each `run` event has the whole run, at most ten per
/// second; the last event is sent when the run is over.
#[utoipa::path(get, path = "/api/lab/runs/{id}/events", tag = "lab",
    responses((status = 200, content_type = "text/event-stream"), (status = 403)))]
pub async fn follow(state: State, _: LabAdmin, id: Path<String>) -> HttpResult {
    let run = find_run(&state, &id).await?;
    let first = RunStream { state, id: run.id, last_frame: -1, over: false };
    let frames = stream::unfold(first, |stream_state| stream_state.next());
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(frames))
}

struct RunStream {
    state: State,
    id: Uuid,
    last_frame: i64,
    over: bool,
}

impl RunStream {
    /// Returns the next frame; `None` after the last one, and when the replica shuts down.
    async fn next(mut self) -> Option<(Result<Bytes, std::io::Error>, Self)> {
        if self.over || self.state.stop.is_cancelled() {
            return None;
        }
        let pool = &self.state.shop.pool;
        for _ in 0..POLLS_PER_KEEP_ALIVE {
            if self.state.stop.is_cancelled() {
                return None;
            }
            match store::frame(pool, self.id).await {
                Ok(Some((frame, over))) if frame > self.last_frame || over => {
                    let run = store::find(pool, self.id).await.ok().flatten();
                    let json = run.as_ref().and_then(|run| serde_json::to_string(run).ok());
                    let (Some(run), Some(json)) = (run, json) else {
                        sleep(FRAME_INTERVAL).await;
                        continue;
                    };
                    (self.last_frame, self.over) = (frame, run.state.is_over());
                    let text = format!("id: {frame}\nevent: run\ndata: {json}\n\n");
                    if !self.over {
                        sleep(FRAME_INTERVAL).await;
                    }
                    return Some((Ok(Bytes::from(text)), self));
                }
                Ok(None) => return None,
                // No new frame, or Postgres is unavailable for a moment: the stream stays open.
                Ok(Some(_)) | Err(_) => sleep(FRAME_INTERVAL).await,
            }
        }
        Some((Ok(Bytes::from_static(b": here\n\n")), self))
    }
}
