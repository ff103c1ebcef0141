//! The buyer's program (`[order] command`): it speaks lines of JSON on stdin and stdout, and
//! answers each request with its id, in any order.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use holdfast_services::tied_command;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::file::program;
use crate::adapter::{LAST_WORDS_TIMEOUT, LastLines, joined, keep_last_lines};

/// Time for the steps before an order.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);

/// The answers to an order; any other one is an error.
const ANSWERS: [&str; 4] = ["sold", "sold-out", "busy", "unknown"];

/// The requests without an answer; `None` after the program's end.
type Pending = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<ProgramAnswer>>>>>;

#[derive(Debug)]
pub(super) struct BuyerProgram {
    _child: Child,
    lines: mpsc::UnboundedSender<String>,
    pending: Pending,
    next_id: AtomicU64,
    last_words: LastLines,
    /// The error in its last line.
    wrong: Arc<OnceLock<String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProgramAnswer {
    id: u64,
    ok: Option<bool>,
    pub(super) answer: Option<String>,
    pub(super) error: Option<String>,
}

impl BuyerProgram {
    /// Starts it, from the main thread.
    pub(super) fn start(
        command: &[String],
        folder: &Path,
        env: &BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let (program, arguments) = program(command, folder, "[order] command")?;
        let mut child = tied_command(&program, "KILL")
            .args(arguments)
            .current_dir(folder)
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("[order] command: can't start `{}`", program.display()))?;
        let mut stdin = child.stdin.take().context("the buyer's program has no stdin")?;
        let stdout = child.stdout.take().context("the buyer's program has no stdout")?;
        let stderr = child.stderr.take().context("the buyer's program has no stderr")?;

        let (lines, mut queued) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(line) = queued.recv().await
                && stdin.write_all(line.as_bytes()).await.is_ok()
            {}
        });

        let last_words = LastLines::default();
        tokio::spawn(keep_last_lines(stderr, Arc::clone(&last_words)));
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let wrong = Arc::default();
        tokio::spawn(read_answers(
            BufReader::new(stdout),
            Arc::clone(&pending),
            Arc::clone(&wrong),
        ));
        Ok(Self { _child: child, lines, pending, next_id: AtomicU64::new(1), last_words, wrong })
    }

    /// Goes through the steps before an order.
    pub(super) async fn prepare(
        &self,
        buyer: u64,
        key: &str,
        item: &Value,
        base: &str,
    ) -> anyhow::Result<()> {
        let request =
            json!({ "op": "prepare", "buyer": buyer, "key": key, "item": item, "base": base });
        let answer = timeout(PREPARE_TIMEOUT, self.call(request)).await;
        let answer = answer.map_err(|_| anyhow!("no answer within {PREPARE_TIMEOUT:?}"))??;
        match answer.ok {
            Some(true) => Ok(()),
            _ => bail!(
                "it answered {}",
                answer.error.unwrap_or_else(|| "without \"ok\": true".to_owned())
            ),
        }
    }

    /// Places the order of a buyer, at this instance if the program can.
    pub(super) async fn order(&self, buyer: u64, base: &str) -> anyhow::Result<ProgramAnswer> {
        self.call(json!({ "op": "order", "buyer": buyer, "base": base })).await
    }

    async fn call(&self, mut request: Value) -> anyhow::Result<ProgramAnswer> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (sender, answer) = oneshot::channel();
        match self.pending.lock().as_mut() {
            Some(pending) => drop(pending.insert(id, sender)),
            // It has ended: there will be no answer.
            None => drop(sender),
        }
        let _ = self.lines.send(format!("{request}\n"));
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => {
                sleep(LAST_WORDS_TIMEOUT).await;
                Err(self.ended())
            }
        }
    }

    /// Fails if it has ended, or has printed what is no answer.
    pub(super) fn check_running(&self) -> anyhow::Result<()> {
        match *self.pending.lock() {
            Some(_) => Ok(()),
            None => Err(self.ended().context("[order] command")),
        }
    }

    fn ended(&self) -> anyhow::Error {
        match self.wrong.get() {
            Some(wrong) => anyhow!("{wrong}"),
            None => {
                let last = joined(&self.last_words);
                anyhow!("the buyer's program has ended. Its last lines:\n  {last}")
            }
        }
    }
}

/// Passes on the answers. At the end of stdout, or after a line that is none, those that wait get
/// none.
async fn read_answers(
    stdout: BufReader<tokio::process::ChildStdout>,
    pending: Pending,
    wrong: Arc<OnceLock<String>>,
) {
    let mut lines = stdout.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match read_answer(&line) {
            Ok(answer) => {
                let waiting = pending.lock().as_mut().and_then(|it| it.remove(&answer.id));
                waiting.map(|waiting| waiting.send(answer));
            }
            Err(why) => {
                let _ = wrong.set(why);
                break;
            }
        }
    }
    *pending.lock() = None;
}

/// Reads an answer, or says what is wrong with it.
fn read_answer(line: &str) -> Result<ProgramAnswer, String> {
    let answer: ProgramAnswer = serde_json::from_str(line)
        .map_err(|error| format!("it printed no answer ({error}): {line}"))?;
    match answer.answer.as_deref() {
        Some(other) if !ANSWERS.contains(&other) => {
            Err(format!("answered {other:?}: it must be sold, sold-out, busy or unknown"))
        }
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_answer_is_none() {
        assert_eq!(read_answer(r#"{"id": 2, "answer": "sold-out"}"#).unwrap().id, 2);
        assert_eq!(read_answer(r#"{"id": 3, "error": "500"}"#).unwrap().id, 3);
        let wrong = read_answer(r#"{"id": 2, "answer": "soldout"}"#).unwrap_err();
        assert_eq!(wrong, "answered \"soldout\": it must be sold, sold-out, busy or unknown");
        assert!(read_answer("hello").unwrap_err().starts_with("it printed no answer (expected"));
    }
}
