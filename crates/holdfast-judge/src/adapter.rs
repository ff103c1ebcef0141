//! The adapter of a worker: a child process that speaks lines of JSON. Each request gets the answer
//! with its id, in any order; in between, the adapter may call servers ([`ServerCalls`]), and say
//! that a lease was lost ([`GrantedLeases`]). One that exits, prints anything else, answers an id
//! twice or not in time is reported with the end of its stderr; calls then never return.

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
use tokio_util::task::AbortOnDropHandle;

use super::failure::{FailureKind, JudgeFailure};
use super::protocol::{
    AdapterAnswer, AdapterCall, AdapterLoss, AdapterOp, AdapterRequest, WorkerSetup,
};
use super::server_calls::ServerCalls;

const MAX_LINE_BYTES: u64 = 64 << 10;
const QUOTED_CHARS: usize = 200;
const STDERR_LINES: usize = 12;
/// Interval of the looks at a line without its end, and the number of looks in a row that find no
/// more of it before it is reported. Counted, as a fault may stop this process in between.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const MAX_QUIET_LOOKS: u32 = 50;
/// Time for an adapter that closed its stdout to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for what an ended program has printed to arrive.
pub(super) const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(200);

/// The last lines that a program has printed.
pub(super) type LastLines = Arc<Mutex<VecDeque<String>>>;

type PendingAnswers = Arc<Mutex<HashMap<u64, PendingAnswer>>>;

/// All leases that the adapter has granted, by the names that it gave them, and whether it has lost
/// them.
type GrantedLeases = Arc<Mutex<HashMap<String, bool>>>;

#[derive(Debug)]
struct PendingAnswer {
    sender: oneshot::Sender<AdapterAnswer>,
    /// The request that this one cancels.
    cancels: Option<u64>,
}

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
    leases: GrantedLeases,
    answer_timeout: Duration,
    failure: FailureReporter,
    /// The task that has the child, which ends with it.
    _child: AbortOnDropHandle<()>,
}

/// Says why the judgement can't go on.
#[derive(Debug, Clone)]
struct FailureReporter {
    last_words: LastLines,
    failures: mpsc::UnboundedSender<JudgeFailure>,
}

impl FailureReporter {
    fn last_words(&self) -> Vec<String> {
        self.last_words.lock().iter().cloned().collect()
    }

    async fn report(&self, failure: JudgeFailure) {
        // For its stderr to arrive.
        sleep(EXIT_TIMEOUT / 10).await;
        let last_words = Some(self.last_words());
        let _ = self.failures.send(JudgeFailure { last_words, ..failure });
    }
}

impl AdapterProcess {
    /// Starts the adapter in this process' group. The first message on `failures` says why the
    /// judgement can't go on.
    pub(super) fn start(
        setup: &WorkerSetup,
        failures: mpsc::UnboundedSender<JudgeFailure>,
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
        let failure = FailureReporter { last_words: Arc::default(), failures };
        tokio::spawn(write_lines(stdin, queued));
        tokio::spawn(keep_last_lines(stderr, Arc::clone(&failure.last_words)));

        let calls = ServerCalls::new(&setup.redis_url, &setup.database_url, lines.clone())
            .map_err(|error| format!("an address of the judge's servers: {error}"))?;
        let leases = GrantedLeases::default();

        // Before the request that it answers is reported as one without any.
        let half_timeout = setup.answer_timeout.as_millis() / (2 * LOOK_INTERVAL.as_millis());
        let max_quiet_looks = u32::try_from(half_timeout).unwrap_or(MAX_QUIET_LOOKS);
        let max_quiet_looks = max_quiet_looks.clamp(1, MAX_QUIET_LOOKS);

        let reader = AnswerReader {
            pending: Arc::clone(&pending),
            leases: leases.clone(),
            calls,
            max_quiet_looks,
        };
        let ended = failure.clone();
        let reading = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut reading = Box::pin(reader.read(BufReader::new(stdout)));
            let why = tokio::select! {
                why = &mut reading => why,
                // A child of the adapter may keep its stdout open.
                _ = child.wait() => timeout(EXIT_TIMEOUT / 10, reading).await.unwrap_or(None),
            };
            let why = match why {
                Some(why) => JudgeFailure::other(why),
                None => describe_exit(&mut child).await,
            };
            // One that printed something else still runs.
            let _ = child.start_kill();
            ended.report(why).await;
        }));

        Ok(Self {
            next_id: AtomicU64::new(1),
            pending,
            lines,
            leases,
            answer_timeout: setup.answer_timeout,
            failure,
            _child: reading,
        })
    }

    /// Returns the last lines that the adapter has written to stderr.
    pub(super) fn last_words(&self) -> Vec<String> {
        self.failure.last_words()
    }

    /// Returns whether the adapter has said that the lease was lost.
    pub(super) fn has_lost(&self, lease: &str) -> bool {
        self.leases.lock().get(lease).is_some_and(|is_lost| *is_lost)
    }

    /// Sends a request and returns its answer, which may take `wait` longer than others. Cancels it
    /// after some time, if asked to, unless it has an answer by then.
    pub(super) async fn call(
        &self,
        op: AdapterOp<'_>,
        wait: Duration,
        cancel_after: Option<Duration>,
    ) -> AdapterAnswer {
        let request = self.send(op);
        let id = request.id;
        let mut receiving = pin!(self.receive(request, wait));
        let Some(after) = cancel_after else { return receiving.await };
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
        let cancels = match op {
            AdapterOp::Cancel { request } => Some(request),
            _ => None,
        };
        // Before the request, as the answer may be there at once.
        self.pending.lock().insert(id, PendingAnswer { sender, cancels });
        let operation = (&op).into();
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
                let why = format!(
                    "the adapter has not answered request {id}, `{operation}`, within {seconds} s"
                );
                let kind = FailureKind::NotAnswered { operation: operation.to_owned() };
                self.failure.report(JudgeFailure::new(kind, why)).await;
            }
        }
        // A returned value would be judged.
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

/// Reads a line to its end, or until nothing more of it arrives for `max_quiet_looks`. Returns
/// whether it was given up; `None` at the end.
async fn read_line_in_time(
    reader: &mut (impl AsyncBufRead + Unpin),
    max_quiet_looks: u32,
) -> Option<(Vec<u8>, bool)> {
    let Ok([_, ..]) = reader.fill_buf().await else { return None };

    let mut line = Vec::new();
    let mut quiet_looks = 0;
    while quiet_looks < max_quiet_looks {
        let before = line.len();
        let mut rest = (&mut *reader).take(MAX_LINE_BYTES - before as u64);
        // What was read stays in `line` when the time is over.
        if timeout(LOOK_INTERVAL, rest.read_until(b'\n', &mut line)).await.is_ok() {
            return Some((line, false));
        }
        quiet_looks = if line.len() == before { quiet_looks + 1 } else { 0 };
    }
    Some((line, true))
}

/// Reads the lines of an adapter.
struct AnswerReader {
    pending: PendingAnswers,
    leases: GrantedLeases,
    calls: Arc<ServerCalls>,
    max_quiet_looks: u32,
}

impl AnswerReader {
    /// Passes on the answers, and begins the calls of servers. Returns why that ended; `None` at
    /// the end of stdout.
    async fn read(&self, mut stdout: BufReader<impl AsyncRead + Unpin>) -> Option<String> {
        loop {
            let line = read_line_in_time(&mut stdout, self.max_quiet_looks).await?;
            if let Err(why) = self.take(&line).await {
                return Some(why);
            }
        }
    }

    /// Takes a line, which may have been given up before its end. Fails if it is none of the
    /// protocol.
    async fn take(&self, (line, given_up): &(Vec<u8>, bool)) -> Result<(), String> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        let quoted = || text.chars().take(QUOTED_CHARS).collect::<String>();
        if !line.ends_with(b"\n") && line.len() as u64 == MAX_LINE_BYTES {
            return Err(format!("the adapter printed a line of more than {MAX_LINE_BYTES} bytes"));
        }
        if *given_up {
            return Err(format!(
                "the adapter printed a line without its newline, and no more of it: {}. End each \
                 answer with a newline, and flush it",
                quoted()
            ));
        }

        match serde_json::from_str::<AdapterAnswer>(text) {
            Ok(answer) => self.pass_on(answer).await,
            Err(error) => {
                if let Ok(call) = serde_json::from_str::<AdapterCall>(text) {
                    self.calls.begin(call);
                    return Ok(());
                }
                if let Ok(AdapterLoss { lost }) = serde_json::from_str(text) {
                    let unknown =
                        || format!("the adapter said that it lost {lost}, which it never granted");
                    let mut leases = self.leases.lock();
                    // Of one that was released it says nothing.
                    *leases.get_mut(&lost).ok_or_else(unknown)? = true;
                    return Ok(());
                }
                let quoted = quoted();
                Err(format!(
                    "the adapter printed something that is not an answer ({error}): {quoted}"
                ))
            }
        }
    }

    async fn pass_on(&self, answer: AdapterAnswer) -> Result<(), String> {
        let id = answer.id;
        let Some(caller) = self.pending.lock().remove(&id) else {
            return Err(format!("the adapter answered request {id}, which waits for no answer"));
        };
        // The adapter knows of the cancellation by now: what it calls from here on cleans up.
        if let Some(request) = caller.cancels
            && self.pending.lock().contains_key(&request)
        {
            self.calls.close(request).await;
        }
        // Before the client knows of it: the next line may say that it was lost.
        if let Some(lease) = answer.lease.as_ref().filter(|_| answer.ok) {
            self.leases.lock().insert(lease.clone(), false);
        }
        let _ = caller.sender.send(answer);
        Ok(())
    }
}

async fn describe_exit(child: &mut Child) -> JudgeFailure {
    match timeout(EXIT_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) => {
            let kind = FailureKind::Exited { code: status.code() };
            JudgeFailure::new(kind, format!("the adapter exited ({status})"))
        }
        Ok(Err(error)) => JudgeFailure::other(format!("the adapter exited ({error})")),
        Err(_) => JudgeFailure::other("the adapter closed its stdout"),
    }
}

/// Keeps the last lines of what a program prints, however much that is.
pub(super) async fn keep_last_lines(stderr: impl AsyncRead + Unpin, last: LastLines) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
        let mut last = last.lock();
        last.push_back(text.trim_end().chars().take(QUOTED_CHARS).collect());
        if last.len() > STDERR_LINES {
            last.pop_front();
        }
    }
}

/// Returns lines as an error quotes them.
pub(super) fn joined(lines: &LastLines) -> String {
    let lines: Vec<String> = lines.lock().iter().cloned().collect();
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Returns why the judgement ends after the adapter has printed `parts` and stays open.
    async fn failure_after(parts: &[&str]) -> Option<String> {
        let pending = PendingAnswers::default();
        for id in 1..=2 {
            let sender = oneshot::channel().0;
            pending.lock().insert(id, PendingAnswer { sender, cancels: None });
        }
        let urls = ["redis://:x@127.0.0.1:1/0", "postgres://x:x@127.0.0.1:1/x"];
        let lines = mpsc::unbounded_channel().0;
        let calls = ServerCalls::new(urls[0], urls[1], lines).expect("addresses");
        let (mut adapter, stdout) = duplex(1_024);
        for part in parts {
            adapter.write_all(part.as_bytes()).await.expect("it fits");
        }
        let leases = GrantedLeases::default();
        leases.lock().insert("mine".to_owned(), false);
        let reader = AnswerReader { pending, leases, calls, max_quiet_looks: 2 };
        reader.read(BufReader::new(stdout)).await
    }

    #[tokio::test]
    async fn answer_without_newline_is_quoted() {
        let answer = r#"{"id":1,"ok":true}"#;
        for parts in [&[answer][..], &["{\"id\":2,\"ok\":true}\n", answer]] {
            let why = failure_after(parts).await.expect("it is a failure");
            assert!(why.contains(answer) && why.contains("without its newline"), "{why}");
        }
        let why = failure_after(&["ready> "]).await.expect("it is a failure");
        assert!(why.contains("ready>"), "{why}");
    }

    #[tokio::test]
    async fn only_what_was_granted_is_lost() {
        let why = failure_after(&["{\"lost\":\"mine\"}\n{\"lost\":\"yours\"}\n"]).await;
        assert!(why.expect("a failure").contains("lost yours, which it never granted"));
    }

    #[tokio::test]
    async fn answer_in_parts_is_one_answer() {
        let why = failure_after(&["{\"id\":1,", "\"ok\":true}\n", "nonsense\n"]).await;
        let why = why.expect("the third part is a failure");
        assert!(why.contains("not an answer") && why.contains("nonsense"), "{why}");
    }
}
