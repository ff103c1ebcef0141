//! A worker: a process with clients and an adapter, which a fault stops and kills as a whole. It
//! speaks with the judge by lines of JSON on stdin and stdout.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use holdfast_lock::clock::monotonic_us;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::adapter::AdapterProcess;
use super::failure::JudgeFailure;
use super::kept::run_kept;
use super::ledger::Ledger;
use super::plan::ADAPTER_START;
use super::protocol::{
    AdapterAnswer, AdapterOp, ReleaseAnswer, Turn, TurnOutcome, WorkerOrder, WorkerReport,
    WorkerSetup,
};
use super::report::{Adapter, ClientId};
use holdfast_base::output;

/// Pause of a client after an answer *error* or *busy*, with ± 50 % jitter.
const RETRY_DELAY_MS: f64 = 20.0;

/// The clients' common state.
#[derive(Debug)]
struct WorkerState {
    setup: WorkerSetup,
    adapter: AdapterProcess,
    fencing: bool,
    /// Clients cancel some of their requests.
    cancels: bool,
    running: watch::Sender<bool>,
    hold: Mutex<HoldState>,
    /// The reason of the last answer *error*.
    last_error: Mutex<Option<String>>,
    failures: mpsc::UnboundedSender<JudgeFailure>,
}

impl WorkerState {
    fn keep_error(&self, answer: &AdapterAnswer) {
        *self.last_error.lock() = Some(describe(answer).to_owned());
    }
}

/// After how long the requests of a turn are cancelled, if they are: at once, within a command, or
/// while others hold the lock.
#[derive(Debug, Clone, Copy, Default)]
struct CancelDelays {
    acquire: Option<Duration>,
    release: Option<Duration>,
}

impl CancelDelays {
    /// Chooses at random: one of three requests is cancelled.
    fn choose(random: &mut StdRng) -> Self {
        let mut choose = |max_ms: u64| {
            let after = [0, 1, random.random_range(1..=max_ms)][random.random_range(0..3)];
            random.random_ratio(1, 3).then(|| Duration::from_millis(after))
        };
        Self { acquire: choose(60), release: choose(2) }
    }
}

#[derive(Debug)]
enum HoldState {
    Idle,
    /// The next client that is granted the lock after this time is to be held.
    Armed {
        since_us: u64,
    },
    Held(oneshot::Sender<u64>),
}

/// Runs the worker until the end of stdin. Fails only if it was not started by a judge.
pub async fn run_worker() -> anyhow::Result<()> {
    let serving = run_kept(async |mut lines| {
        let first = lines.recv().await.unwrap_or_default();
        let setup: WorkerSetup = serde_json::from_str(&first)
            .context("`judge-worker` is started by `holdfast judge`")?;
        if let Err(why) = serve(setup, &mut lines).await {
            report(&WorkerReport::Failed(why.into()));

            while lines.recv().await.is_some() {}
        }
        Ok(())
    });
    serving.await
}

/// Follows the judge's orders until the end of stdin.
async fn serve(
    setup: WorkerSetup,
    orders: &mut mpsc::UnboundedReceiver<String>,
) -> anyhow::Result<()> {
    let (failures, mut failed) = mpsc::unbounded_channel();
    let adapter = AdapterProcess::start(&setup, failures.clone()).map_err(anyhow::Error::msg)?;
    let introduced = tokio::select! {
        introduced = introduce(&adapter, &setup) => introduced?,
        Some(why) = failed.recv() => return Err(why.into()),
        None = orders.recv() => return Ok(()),
    };

    let state = Arc::new(WorkerState {
        adapter,
        fencing: introduced.fencing,
        cancels: introduced.cancels && setup.cancels,
        running: watch::Sender::new(true),
        hold: Mutex::new(HoldState::Idle),
        last_error: Mutex::default(),
        failures,
        setup,
    });

    let mut ledgers = Vec::new();
    for _ in 0..state.setup.args.clients {
        let setup = &state.setup;
        ledgers.push(Ledger::connect(&setup.ledger_url, setup.pass).await?);
    }
    // Not before all are connected: the work begins for all at once.
    report(&WorkerReport::Ready(introduced));

    let mut clients = JoinSet::new();
    loop {
        let line = tokio::select! {
            line = orders.recv() => line,
            Some(why) = failed.recv() => return Err(why.into()),
            Some(ended) = clients.join_next() => {
                ended.context("a client of the worker panicked")?;
                if clients.is_empty() {
                    let last_error = state.last_error.lock().clone();
                    let last_words = state.adapter.last_words();
                    report(&WorkerReport::Ended { last_error, last_words });
                }
                continue;
            }
        };

        let Some(line) = line else { return Ok(()) };
        match serde_json::from_str(&line).context("an order of the judge")? {
            WorkerOrder::Begin => {
                for (client, ledger) in (0..).zip(ledgers.drain(..)) {
                    clients.spawn(run_client(Arc::clone(&state), client, ledger));
                }
            }
            WorkerOrder::Hold => {
                *state.hold.lock() = HoldState::Armed { since_us: monotonic_us() };
            }
            WorkerOrder::Go { commit_ms } => {
                let held = std::mem::replace(&mut *state.hold.lock(), HoldState::Idle);
                if let HoldState::Held(go) = held {
                    let _ = go.send(commit_ms);
                }
            }
            WorkerOrder::End => {
                state.running.send_replace(false);
            }
        }
    }
}

/// Sends `init`, and returns the answer.
pub(super) async fn introduce(
    adapter: &AdapterProcess,
    setup: &WorkerSetup,
) -> anyhow::Result<Adapter> {
    let init = AdapterOp::Init {
        worker: setup.worker,
        redis_url: &setup.redis_url,
        database_url: &setup.database_url,
        ttl_ms: setup.args.ttl_ms,
    };
    let answer = adapter.call(init, ADAPTER_START, None).await;
    if !answer.ok {
        bail!("the adapter answered `init` with an error: {}", describe(&answer));
    }

    let name = answer.name.filter(|name| !name.trim().is_empty());
    Ok(Adapter {
        name: name.context("the adapter's answer to `init` has no `name`")?,
        fencing: answer.fencing.unwrap_or_default(),
        renews: answer.renews.unwrap_or_default(),
        cancels: answer.cancels.unwrap_or_default(),
    })
}

fn describe(answer: &AdapterAnswer) -> &str {
    answer.detail.as_deref().or(answer.reason.as_deref()).unwrap_or("without a reason")
}

fn report(report: &WorkerReport) {
    if let Ok(line) = serde_json::to_string(report) {
        // Without the judge, stdin ends as well.
        let _ = output::print(&(line + "\n"));
    }
}

/// Takes turns until the work ends.
async fn run_client(state: Arc<WorkerState>, client: u32, mut ledger: Ledger) {
    let setup = &state.setup;
    let id = ClientId { worker: setup.worker, client };
    // Clients that pause alike would meet at the lock again and again.
    let stream = u64::from(setup.worker) << 32 | u64::from(client);
    let mut random = StdRng::seed_from_u64(setup.seed ^ stream.rotate_left(16));
    while *state.running.borrow() {
        let turn = Turn { id, asked_us: monotonic_us(), ..Turn::default() };
        let cancelled = match state.cancels {
            true => CancelDelays::choose(&mut random),
            false => CancelDelays::default(),
        };
        let turn = match take_turn(&state, turn, &mut ledger, cancelled).await {
            Ok(turn) => turn,
            Err(error) => {
                let _ = state.failures.send(error.into());
                return std::future::pending().await;
            }
        };

        report(&WorkerReport::Turn(turn));

        let pause = match turn.outcome {
            TurnOutcome::Granted | TurnOutcome::Timeout | TurnOutcome::Cancelled => {
                setup.args.think_ms as f64
            }
            TurnOutcome::Busy | TurnOutcome::Error => RETRY_DELAY_MS,
        };
        if pause > 0.0 {
            sleep(Duration::from_secs_f64(pause * random.random_range(0.5..1.5) / 1_000.0)).await;
        }
    }
}

/// Acquires the lock, reads, works, writes, releases.
async fn take_turn(
    state: &WorkerState,
    mut turn: Turn,
    ledger: &mut Ledger,
    cancelled: CancelDelays,
) -> anyhow::Result<Turn> {
    let setup = &state.setup;
    let key = setup.key.as_str();
    let wait_ms = setup.args.wait_ms;
    let acquire = AdapterOp::Acquire { key, wait_ms };
    let wait = Duration::from_millis(wait_ms);
    let answer = state.adapter.call(acquire, wait, cancelled.acquire).await;
    turn.answered_us = monotonic_us();

    if !answer.ok {
        turn.outcome = refusal(state, &answer, cancelled)?;
        return Ok(turn);
    }

    turn.outcome = TurnOutcome::Granted;
    turn.fence = if state.fencing {
        let lie = "the adapter said `fencing: true` and granted a lock without a `fence`";
        Some(answer.fence.context(lie)?)
    } else {
        None
    };
    let lease = answer.lease.unwrap_or_default();

    turn.read_us = monotonic_us();
    let row = ledger.read(turn.fence).await?;
    turn.value = row.stock;
    let commit_ms = match held(state, &turn) {
        Some(go) => go.await.unwrap_or_default(),
        None => {
            sleep(Duration::from_millis(setup.args.work_ms)).await;
            0
        }
    };

    turn.stopped = state.adapter.has_lost(&lease);
    if turn.stopped {
        // As an application that learns of the loss; then it reads what its write would have lost.
        turn.saved = ledger.read(None).await?.stock != row.stock;
    } else {
        turn.wrote_us = monotonic_us();
        turn.refused = ledger.write(&turn, row, commit_ms).await?;
    }

    turn.release_us = monotonic_us();
    let release = AdapterOp::Release { key, lease: &lease };
    let answer = state.adapter.call(release, Duration::ZERO, cancelled.release).await;
    turn.released_us = monotonic_us();
    turn.release = match (answer.ok, answer.reason.as_deref()) {
        (true, _) => ReleaseAnswer::Ok,
        (false, Some("lost")) => ReleaseAnswer::Lost,
        (false, Some("error")) => {
            state.keep_error(&answer);
            ReleaseAnswer::Error
        }
        (false, Some("cancelled")) if cancelled.release.is_some() => ReleaseAnswer::Cancelled,
        (false, other) => bail!(
            "the adapter answered `release` with the reason {other:?}; it is `lost` or `error`"
        ),
    };
    Ok(turn)
}

/// Returns why the lock was not granted.
fn refusal(
    state: &WorkerState,
    answer: &AdapterAnswer,
    cancelled: CancelDelays,
) -> anyhow::Result<TurnOutcome> {
    Ok(match answer.reason.as_deref() {
        Some("busy") => TurnOutcome::Busy,
        Some("timeout") => TurnOutcome::Timeout,
        Some("cancelled") if cancelled.acquire.is_some() => TurnOutcome::Cancelled,
        Some("error") => {
            state.keep_error(answer);
            TurnOutcome::Error
        }
        other => bail!(
            "the adapter answered `acquire` with the reason {other:?}; it is `busy`, `timeout` or \
             `error`"
        ),
    })
}

/// Reports that this client is held if that was ordered before its grant. It may write when the
/// returned channel says so.
fn held(state: &WorkerState, turn: &Turn) -> Option<oneshot::Receiver<u64>> {
    let mut hold = state.hold.lock();
    match *hold {
        HoldState::Armed { since_us } if turn.answered_us >= since_us => {}
        _ => return None,
    }

    let (go, may_write) = oneshot::channel();
    *hold = HoldState::Held(go);
    report(&WorkerReport::Holding(*turn));
    Some(may_write)
}
