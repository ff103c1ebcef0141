//! The adapter of a worker: a child process that speaks lines of JSON. Each request gets the answer
//! with its id, in any order. An adapter that exits, prints anything else, answers an id twice or
//! not in time is reported with the end of its stderr; calls then never return.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::protocol::{AdapterAnswer, AdapterOp, AdapterRequest, WorkerSetup};

pub(super) const NOT_ANSWERED: &str = "the adapter has not answered";
const MAX_LINE_BYTES: u64 = 64 << 10;
const QUOTED_CHARS: usize = 200;
const STDERR_LINES: usize = 12;
/// Time for an adapter that closed its stdout to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

type PendingAnswers = Arc<Mutex<HashMap<u64, oneshot::Sender<AdapterAnswer>>>>;

#[derive(Debug)]
struct SentRequest {
    id: u64,
    operation: &'static str,
    /// Where its answer arrives.
    answer: oneshot::Receiver<AdapterAnswer>,
}

#[derive(Debug)]
pub(super) struct AdapterProcess {
    next_id: AtomicU64,
    pending: PendingAnswers,
    lines: mpsc::UnboundedSender<String>,
    answer_timeout: Duration,
    failure: Failure,
}

/// Says why the judgement can't go on.
#[derive(Debug, Clone)]
struct Failure {
    last_words: Arc<Mutex<VecDeque<String>>>,
    failures: mpsc::UnboundedSender<String>,
}

impl Failure {
    fn last_words(&self) -> Vec<String> {
        self.last_words.lock().iter().cloned().collect()
    }

    async fn report(&self, why: String) {
        // For its stderr to arrive.
        sleep(EXIT_TIMEOUT / 10).await;
        let last_words = self.last_words();
        let _ = self.failures.send(match last_words.as_slice() {
            [] => format!("{why}. Its stderr is empty"),
            lines => format!("{why}. The end of its stderr:\n  {}", lines.join("\n  ")),
        });
    }
}

impl AdapterProcess {
    /// Starts the adapter in this process' group. The first message on `failures` says why the
    /// judgement can't go on.
    pub(super) fn start(
        setup: &WorkerSetup,
        failures: mpsc::UnboundedSender<String>,
    ) -> Result<Self, String> {
        let (program, arguments) =
            setup.args.command.split_first().ok_or("no command was given")?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(setup.args.env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("can't start the adapter `{program}`: {error}"))?;

        let stdin = child.stdin.take().ok_or("the adapter has no stdin")?;
        let stdout = child.stdout.take().ok_or("the adapter has no stdout")?;
        let stderr = child.stderr.take().ok_or("the adapter has no stderr")?;

        let (lines, queued) = mpsc::unbounded_channel();
        let pending = PendingAnswers::default();
        let failure = Failure { last_words: Arc::default(), failures };
        tokio::spawn(write_lines(stdin, queued));
        tokio::spawn(keep_last_lines(stderr, Arc::clone(&failure.last_words)));

        let process = Self {
            next_id: AtomicU64::new(1),
            pending: Arc::clone(&pending),
            lines,
            answer_timeout: setup.answer_timeout,
            failure: failure.clone(),
        };

        tokio::spawn(async move {
            let mut reading = Box::pin(read_answers(BufReader::new(stdout), &pending));
            let why = tokio::select! {
                why = &mut reading => why,
                // A child of the adapter may keep its stdout open.
                _ = child.wait() => timeout(EXIT_TIMEOUT / 10, reading).await.unwrap_or(None),
            };
            let why = match why {
                Some(why) => why,
                None => describe_exit(&mut child).await,
            };
            // One that printed something else still runs.
            let _ = child.start_kill();
            failure.report(why).await;
        });
        Ok(process)
    }

    /// Returns the last lines that the adapter has written to stderr.
    pub(super) fn last_words(&self) -> Vec<String> {
        self.failure.last_words()
    }

    /// Sends a request and returns its answer, which may take `wait` longer than others.
    pub(super) async fn call(&self, op: AdapterOp<'_>, wait: Duration) -> AdapterAnswer {
        let request = self.send(op);
        self.receive(request, wait).await
    }

    /// As [`Self::call`], but cancels the request after some time if it has no answer yet.
    pub(super) async fn call_and_cancel(
        &self,
        op: AdapterOp<'_>,
        wait: Duration,
        after: Duration,
    ) -> AdapterAnswer {
        let request = self.send(op);
        let id = request.id;
        let mut receiving = pin!(self.receive(request, wait));
        if !after.is_zero()
            && let Ok(answer) = timeout(after, &mut receiving).await
        {
            return answer;
        }

        let cancel = self.send(AdapterOp::Cancel { request: id });
        tokio::join!(receiving, self.receive(cancel, Duration::ZERO)).0
    }

    fn send(&self, op: AdapterOp<'_>) -> SentRequest {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        // Before the request, as the answer may be there at once.
        self.pending.lock().insert(id, sender);
        let operation = op.name();
        let request = AdapterRequest { id, op };
        // A value without maps of odd keys always serializes; a closed pipe is reported elsewhere.
        let _ = self.lines.send(serde_json::to_string(&request).unwrap_or_default() + "\n");
        SentRequest { id, operation, answer }
    }

    async fn receive(&self, request: SentRequest, wait: Duration) -> AdapterAnswer {
        let SentRequest { id, operation, answer } = request;
        let limit = self.answer_timeout + wait;
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) => {}
            Err(_) => {
                let seconds = limit.as_secs_f64();
                let why = format!("{NOT_ANSWERED} request {id}, `{operation}`, within {seconds} s");
                self.failure.report(why).await;
            }
        }
        // Whatever was returned here would be judged.
        pending().await
    }
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads a line; `None` at the end.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    match reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
        Ok(1..) => Some(line),
        _ => None,
    }
}

/// Passes on the answers. Returns why that ended; `None` at the end of stdout.
async fn read_answers(
    mut stdout: BufReader<impl AsyncRead + Unpin>,
    pending: &PendingAnswers,
) -> Option<String> {
    loop {
        let line = read_line(&mut stdout).await?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !line.ends_with(b"\n") && line.len() as u64 == MAX_LINE_BYTES {
            return Some(format!("the adapter printed a line of more than {MAX_LINE_BYTES} bytes"));
        }

        let answer: AdapterAnswer = match serde_json::from_str(text) {
            Ok(answer) => answer,
            Err(error) => {
                let quoted: String = text.chars().take(QUOTED_CHARS).collect();
                return Some(format!(
                    "the adapter printed something that is not an answer ({error}): {quoted}"
                ));
            }
        };

        let id = answer.id;
        let Some(caller) = pending.lock().remove(&id) else {
            return Some(format!("the adapter answered request {id}, which waits for no answer"));
        };
        let _ = caller.send(answer);
    }
}

async fn describe_exit(child: &mut Child) -> String {
    match timeout(EXIT_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) => format!("the adapter exited ({status})"),
        Ok(Err(error)) => format!("the adapter exited ({error})"),
        Err(_) => "the adapter closed its stdout".to_owned(),
    }
}

async fn keep_last_lines(stderr: impl AsyncRead + Unpin, last: Arc<Mutex<VecDeque<String>>>) {
    let mut stderr = BufReader::new(stderr);
    while let Some(line) = read_line(&mut stderr).await {
        let text = String::from_utf8_lossy(&line);
        let mut last = last.lock();
        last.push_back(text.trim_end().chars().take(QUOTED_CHARS).collect());
        if last.len() > STDERR_LINES {
            last.pop_front();
        }
    }
}
