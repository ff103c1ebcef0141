//! Runs of the lab: requests them, reads them, streams them. Reading needs no sign-in.

use std::time::Duration;
use std::{io, iter};

use actix_web::web::{Bytes, Path};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::lists::{Page, page};
use crate::web::middleware::{
    Json, LabAdmin, LabReader, ListParameters, Query, begin_command, list_query,
};
use crate::web::offload::offload;
use crate::web::page_place::{FrameTimeout, PagePlace, next_slice};
use crate::web::run_frames::run_json;
use crate::web::{AppState, HttpResult, MAX_EVENT_STREAMS, Problem, ProblemType, State};
use holdfast_base::messages::{Language, Message, message};
use holdfast_lab::run::{FaultKind, LabRun, RunRequest};
use holdfast_lab::store::{
    self, MAX_OPEN_RUNS_OF_USER, MAX_QUEUED_RUNS, NewRun, RunEnqueueResult, RunRevision,
    RunSummary, StoredRun,
};
use holdfast_shop::budget::BudgetPermit;
use holdfast_shop::locks::Lock;

const FRAME_INTERVAL: Duration = Duration::from_millis(100);
const QUEUE_INTERVAL: Duration = Duration::from_millis(500);
/// Length of JSON that takes a worker less than a millisecond to parse.
const MAX_BYTES_OF_WORKER: usize = 16 * 1024;
/// Time to wait for a runner: a shop that has just started starts its runner last.
const RUNNER_TIMEOUT: Duration = Duration::from_millis(1_500);
const QUEUE_RETRY_S: u64 = 15;
/// Runs that are read at a time: orders share the connections.
const MAX_READS: usize = 4;
/// Polls without a new frame after which a comment is sent, to detect a broken connection.
const POLLS_PER_KEEP_ALIVE: u32 = 50;

static READS: Semaphore = Semaphore::const_new(MAX_READS);

/// The id of a requested run.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunId {
    pub id: Uuid,
}

/// Requests a run of a lesson or of a load (admin). Runs are executed one at a time, in order of
/// request. A request is rejected with `overloaded` if the queue is full.
#[utoipa::path(post, path = "/api/lab/runs", tag = "lab",
    responses((status = 202, body = RunId), (status = 503)))]
pub(crate) async fn create(
    state: State,
    request: HttpRequest,
    _: LabAdmin,
    run: Json<RunRequest>,
) -> HttpResult {
    let run = run.read()?;
    begin_command(&request);
    let id = queue_run(&state, NewRun { request: &run, user: None, visitor: None }).await?;
    Ok(HttpResponse::Accepted()
        .insert_header(("Location", format!("/api/lab/runs/{id}")))
        .json(RunId { id }))
}

/// Validates and queues a run; returns its id.
pub(crate) async fn queue_run(state: &AppState, run: NewRun<'_>) -> Result<Uuid, Problem> {
    let invalid = run.request.invalid_field();
    if let Some((field, why)) = invalid.or_else(|| unconfigured_field(state, run.request)) {
        return Err(Problem::field(field, why));
    }

    // A runner that has just started has not said so yet.
    let end = Instant::now() + RUNNER_TIMEOUT;
    let result = loop {
        match store::enqueue(&state.shop.pool, run).await? {
            RunEnqueueResult::NoRunner if Instant::now() < end => sleep(FRAME_INTERVAL).await,
            result => break result,
        }
    };

    match result {
        RunEnqueueResult::Queued(id) => Ok(id),
        RunEnqueueResult::QueueFull => {
            let detail = message!("problem-queued-runs", runs = MAX_QUEUED_RUNS);
            Err(Problem::new(ProblemType::Overloaded, detail).retry_after(QUEUE_RETRY_S))
        }
        RunEnqueueResult::UserLimit => {
            let detail = message!("problem-open-runs", runs = MAX_OPEN_RUNS_OF_USER);
            Err(Problem::new(ProblemType::TooManyRequests, detail).retry_after(QUEUE_RETRY_S))
        }
        RunEnqueueResult::VisitorLeft => Err(Problem::session_over()),
        RunEnqueueResult::NoRunner => {
            Err(Problem::new(ProblemType::Unavailable, message!("problem-no-runner")))
        }
    }
}

/// Returns the first field of a load that needs the servers of `redlock`, if this shop has none.
pub fn unconfigured_field(state: &AppState, run: &RunRequest) -> Option<(&'static str, Message)> {
    if run.lesson.is_some() || state.shop.locks.is_configured(Lock::Redlock) {
        return None;
    }

    let redlock = run.strategies.iter().find(|name| *name == "redlock");
    if let Some(strategy) = redlock {
        return Some(("strategies", message!("lab-wrong-redlock", strategy)));
    }
    let pauses_node = run.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::PauseNode);
    pauses_node.then(|| ("fault", message!("lab-wrong-node")))
}

/// Lists the runs, newest first. Needs no sign-in while the lab is on.
#[utoipa::path(get, path = "/api/lab/runs", tag = "lab", security(()), params(ListParameters),
    responses((status = 200, body = Page<RunSummary>), (status = 403)))]
pub(crate) async fn list(state: State, request: HttpRequest, _: LabReader) -> HttpResult {
    let (after, limit) = list_query(&request)?;
    let mut runs = store::newest(&state.shop.pool, after, None, limit + 1).await?;
    for verdict in runs.iter_mut().filter_map(|run| run.verdict.as_mut()) {
        *verdict = verdict.english().into();
    }
    page(&request, runs, limit, |run| run.id)
}

/// Returns a run with its results. Needs no sign-in while the lab is on.
#[utoipa::path(get, path = "/api/lab/runs/{id}", tag = "lab", security(()),
    responses((status = 200, body = LabRun), (status = 403)))]
pub(crate) async fn read(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let stored = find_stored(&state, &request, &id).await?;
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    place.respond(response, move || run_json(stored, Language::English)).await
}

/// Finds a run, and parses it off the workers. A long one takes memory: a request without a place
/// for its page waits before.
pub(crate) async fn find_run(
    state: &AppState,
    request: &HttpRequest,
    id: &str,
) -> Result<LabRun, Problem> {
    parse_run(find_stored(state, request, id).await?).await
}

/// Finds a run. One that is over, and thus whole, is counted against the limit of its readers
/// before it is read.
async fn find_stored(
    state: &AppState,
    request: &HttpRequest,
    id: &str,
) -> Result<StoredRun, Problem> {
    let not_found = || Problem::missing(message!("problem-missing-run", id));
    let parsed = parse_id(id)?;
    let pool = &state.shop.pool;
    if store::revision(pool, parsed).await?.ok_or_else(not_found)?.is_over {
        state.rate_limits.check_lab_page(request).await?;
    }

    // A closed semaphore would be a bug; this one is never closed.
    let _turn = READS.acquire().await;
    store::find_stored(pool, parsed).await?.ok_or_else(not_found)
}

fn parse_id(id: &str) -> Result<Uuid, Problem> {
    Uuid::parse_str(id).map_err(|_| Problem::missing(message!("problem-missing-run", id)))
}

/// Parses a run, a long one off the workers.
pub(crate) async fn parse_run(stored: StoredRun) -> Result<LabRun, Problem> {
    match stored.length() {
        ..=MAX_BYTES_OF_WORKER => Ok(stored.parse()?),
        _ => Ok(offload(move || stored.parse()).await??),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StreamParameters {
    /// Language of the steps so far, `en` (the default) or `zh`.
    language: Option<String>,
}

/// Streams a run as server-sent events. Each `run` event has the whole run, at most ten per second;
/// the first has the present state, the last is sent when the run is over. A replica serves at most
/// 200 streams at once. Needs no sign-in while the lab is on.
#[utoipa::path(get, path = "/api/lab/runs/{id}/events", tag = "lab", security(()),
    params(StreamParameters),
    responses((status = 200, content_type = "text/event-stream"), (status = 403), (status = 503)))]
pub(crate) async fn follow(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
    query: Query<StreamParameters>,
) -> HttpResult {
    let language = query.read()?.language.as_deref().and_then(Language::of_tag);
    let address = state.rate_limits.address_name(&request);
    let permit = state.event_streams.try_acquire(address).ok_or_else(|| {
        let detail = message!("problem-event-streams", streams = MAX_EVENT_STREAMS);
        Problem::new(ProblemType::Overloaded, detail)
    })?;

    let id = parse_id(&id)?;
    if store::revision(&state.shop.pool, id).await?.is_none() {
        return Err(Problem::missing(message!("problem-missing-run", id)));
    }
    let first = RunStream {
        state,
        id,
        language: language.unwrap_or_default(),
        last: None,
        sending: FrameTimeout::of(&request),
        _permit: permit,
    };
    let frames = stream::unfold(first, |stream_state| stream_state.next());
    // The streams of a run share a frame; each would copy one that is sent whole.
    let slices = frames.flat_map(|mut frame| {
        stream::iter(iter::from_fn(move || next_slice(&mut frame).map(Ok::<_, io::Error>)))
    });

    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(slices))
}

#[derive(Debug)]
struct RunStream {
    state: State,
    id: Uuid,
    language: Language,
    last: Option<RunRevision>,
    sending: FrameTimeout,
    _permit: BudgetPermit,
}

impl RunStream {
    /// Returns the next frame; `None` after the last one, and when the replica shuts down.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let (pool, frames) = (&self.state.shop.pool, &self.state.run_frames);
        for _ in 0..POLLS_PER_KEEP_ALIVE {
            if self.last.is_some_and(|frame| frame.is_over) || self.state.stop.is_cancelled() {
                return None;
            }
            let is_queued = self.last.is_some_and(|frame| frame.position.is_some());
            sleep(if is_queued { QUEUE_INTERVAL } else { FRAME_INTERVAL }).await;

            // While Postgres is unavailable for a moment, the stream stays open.
            let Ok(revision) = frames.revision(pool, self.id).await else { continue };
            let revision = revision?;
            if self.last == Some(revision) && !revision.is_over {
                continue;
            }
            let frame = frames.frame(pool, self.id, revision, self.language).await;
            let Ok(Some(frame)) = frame else { continue };
            self.last = Some(RunRevision { is_over: frame.is_over, ..revision });
            self.sending.begin();
            return Some((frame.event, self));
        }
        self.sending.begin();
        Some((Bytes::from_static(b": here\n\n"), self))
    }
}
