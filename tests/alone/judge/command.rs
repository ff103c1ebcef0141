//! Runs `holdfast judge` with an adapter of `adapter.py`, and watches its processes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use holdfast_testkit::topology::until_within;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::{SharedMachine, share_machine};

pub const ADAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alone/judge/adapter.py");
/// Clients of each of the two workers: few, as the tests run side by side.
const CLIENTS: &str = "3";
/// Turns without a fault: few, as most tests ask for what is wrong with each.
const TURNS: &str = "50";
/// Pause of a client between two turns. Those that wait ask for the lock again and again, which
/// would keep a core busy; with this pause mostly one or two wait, which is enough for a fault.
const THINK_MS: &str = "100";
/// A process that is looked for lives for longer.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(300);

/// A process, which its start time identifies even if its id is used again.
type Identity = (i32, u64);

/// What a running adapter, or an instance of a service, has in its command line.
const ADAPTERS: [&str; 4] = ["adapter.py", "holdfast_course.py", "misfits.py", "uvicorn"];

/// A running judge. Its end is checked: no process that it started runs afterwards.
pub struct JudgeRun {
    child: Child,
    seen: Arc<Mutex<BTreeSet<Identity>>>,
    /// Dropped, it ends the watcher.
    watching: Sender<()>,
    watcher: JoinHandle<()>,
    outputs: [JoinHandle<String>; 2],
    _folder: Option<TempDir>,
    _machine: SharedMachine,
}

pub struct JudgeEnd {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl JudgeEnd {
    pub fn judgement(&self) -> Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

impl JudgeRun {
    /// Starts the judge with an adapter of this mode; its JSON is printed.
    pub fn start(mode: &str, options: &[&str]) -> Self {
        Self::start_with(mode, options, &["--json", "-"])
    }

    pub fn start_with(mode: &str, options: &[&str], more: &[&str]) -> Self {
        Self::start_behind(&[], mode, &[options, more].concat())
    }

    /// Starts the judge with an adapter that another program starts.
    pub fn start_behind(program: &[&str], mode: &str, options: &[&str]) -> Self {
        Self::start_command(options, &[program, &["python3", ADAPTER, mode]].concat())
    }

    pub fn start_command(options: &[&str], command: &[&str]) -> Self {
        let machine = share_machine();
        let folder = tempfile::tempdir().unwrap();
        let defaults = [["--clients", CLIENTS], ["--turns", TURNS], ["--think-ms", THINK_MS]];
        let defaults = defaults.iter().filter(|[name, _]| !options.contains(name)).flatten();
        let mut judge = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        judge
            .args(["judge", "--seed", "7"])
            .args(defaults)
            .arg("--env")
            .arg(format!("LOCK_FOLDER={}", folder.path().display()))
            .args(options)
            .arg("--")
            .args(command);
        Self { _folder: Some(folder), ..Self::watch(judge, machine) }
    }

    /// Starts a check of the course, in a process group of its own as a shell does.
    pub fn start_check(folder: &Path) -> Self {
        let machine = share_machine();
        let mut check = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        check.args(["course", "check", "--seed", "7"]).arg(folder).process_group(0);
        Self::watch(check, machine)
    }

    /// Starts any command of the judge.
    pub fn watch(mut command: Command, machine: SharedMachine) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let judge = i32::try_from(child.id()).unwrap();
        let (watching, end) = mpsc::channel();
        let seen = Arc::default();
        let watcher = thread::spawn({
            let seen = Arc::clone(&seen);
            move || watch(judge, &seen, &end)
        });
        let stdout = read(child.stdout.take().unwrap());
        let stderr = read(child.stderr.take().unwrap());
        Self {
            child,
            seen,
            watching,
            watcher,
            outputs: [stdout, stderr],
            _folder: None,
            _machine: machine,
        }
    }

    pub fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends a signal to all processes of a check's group, as a terminal does on ^C.
    pub fn send_to_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    pub fn wait_for(&self, what: &str, condition: impl FnMut() -> bool) {
        until_within(TIMEOUT, what, condition);
    }

    pub fn wait_for_adapters(&self) {
        self.wait_for_adapters_that(2, |_| true);
    }

    /// Waits until the cluster of a temporary Postgres is created; returns its parent folder.
    fn wait_for_cluster(&self) -> PathBuf {
        let mut folder = None;
        self.wait_for("the cluster is created", || {
            let seen = self.seen.lock().unwrap().clone();
            folder = seen.iter().find_map(|(pid, _)| {
                let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
                let mut arguments = command.split('\0').skip_while(|it| *it != "--pgdata");
                Some(Path::new(arguments.nth(1)?).parent()?.to_owned())
            });
            folder.as_ref().is_some_and(|folder| fs::read_dir(folder).unwrap().next().is_some())
        });
        folder.unwrap()
    }

    /// Interrupts a judge while its Postgres is made: of its folder nothing is left.
    pub fn interrupt_at_its_start(mut judge: Command) {
        // A copy of a cluster, as script/unsynced-postgres makes it, would be there at once.
        let path = std::env::var("PATH").unwrap();
        let folders = path.split(':').filter(|folder| !folder.ends_with("/unsynced"));
        judge.env("PATH", folders.collect::<Vec<_>>().join(":"));
        let run = Self::watch(judge, share_machine());

        let folder = run.wait_for_cluster();
        run.send(Signal::INT);
        let run = run.finish();
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(!folder.exists(), "{}", folder.display());
    }

    pub fn wait_for_stopped_adapter(&self) {
        self.wait_for_adapters_that(1, |state| state == 'T');
    }

    fn wait_for_adapters_that(&self, count: usize, are: impl Fn(char) -> bool) {
        self.wait_for("the adapters are in that state", || {
            let seen = self.seen.lock().unwrap().clone();
            let adapters = seen.iter().filter(|(pid, _)| {
                let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command);
                let is_adapter = ADAPTERS.iter().any(|file| command.contains(file));
                // Not the worker, which receives the adapter's command on its stdin.
                is_adapter && state_of(*pid).is_some_and(|state| are(state.0))
            });
            adapters.count() >= count
        });
    }

    /// Waits for the end, and checks that nothing is left.
    pub fn finish(self) -> JudgeEnd {
        self.finish_within(Duration::ZERO)
    }

    /// The same; processes may take a while to end after the judge.
    pub fn finish_within(mut self, limit: Duration) -> JudgeEnd {
        let mut status = None;
        until_within(TIMEOUT, "the judge ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        drop(self.watching);
        self.watcher.join().unwrap();
        let seen = self.seen.lock().unwrap().clone();
        assert!(status.unwrap().code() != Some(0) || seen.len() > 4, "{seen:?}");
        let left = || {
            let alive = |(pid, start): &&Identity| {
                state_of(*pid).is_some_and(|(state, at)| state != 'Z' && at == *start)
            };
            seen.iter().filter(alive).map(|(pid, _)| *pid).collect::<Vec<_>>()
        };
        let deadline = Instant::now() + limit;
        until_within(TIMEOUT, "its processes end", || {
            left().is_empty() || Instant::now() >= deadline
        });
        let names = left().into_iter().map(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            format!("{pid} {}", String::from_utf8_lossy(&command).replace('\0', " "))
        });
        let names: Vec<String> = names.collect();
        assert!(names.is_empty(), "these processes run: {names:#?}");
        let [stdout, stderr] = self.outputs.map(|output| output.join().unwrap());
        JudgeEnd { code: status.unwrap().code(), stdout, stderr }
    }
}

pub fn is_alive(pid: i32) -> bool {
    state_of(pid).is_some_and(|(state, _)| state != 'Z')
}

fn read(mut pipe: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

/// Records all descendants of the judge, until `end` is closed.
fn watch(judge: i32, seen: &Mutex<BTreeSet<Identity>>, end: &Receiver<()>) {
    loop {
        // Not by a look at every process of the machine, of which there are hundreds.
        let (mut next, mut found) = (vec![judge], Vec::new());
        while let Some(pid) = next.pop() {
            for child in children(pid) {
                next.push(child);
                found.extend(state_of(child).map(|(_, start)| (child, start)));
            }
        }
        seen.lock().unwrap().extend(found);

        if end.recv_timeout(WATCH_INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The processes that the threads of a process have started.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|it| it.parse().unwrap()).collect()
}

/// State and start time of a process.
fn state_of(pid: i32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields[0].chars().next()?, fields[19].parse().ok()?))
}
