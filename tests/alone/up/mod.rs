//! `holdfast up` as a process that is started, watched, killed and stopped.
//!
//! Needs Postgres and Redis installed (script/test installs them); uses free ports below the
//! ephemeral ones and a temporary folder per test.

mod class;
mod hang_up;
mod identity;
mod owners;
mod standby;
mod umask;

use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use holdfast_services::{RunningUp, read_env};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::{SharedMachine, share_machine};

/// Longer than any wait takes on a busy machine: only a failure reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// An account without rights, for tests that run as root.
const OTHER_USER: u32 = 65_534;

#[tokio::test]
async fn up_serves_and_stops_cleanly() {
    let test_folder = TestFolder::new();
    let up = Running::start(&test_folder, &[]).await;
    assert_eq!(
        up.line,
        format!(
            "Holdfast is ready: http://127.0.0.1:{} (2 replicas, lock: owner, lab: on). \
             Ctrl-C stops it.",
            test_folder.port
        )
    );
    let mode = fs::metadata(test_folder.data().join("env")).expect("env").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let running = up.env();
    assert_eq!(running.replicas.len(), 2);
    for port in [test_folder.port, test_folder.port + 1] {
        assert!(is_ready(port).await, "replica {port}");
    }
    assert_services_respond(&running).await;
    let (pids, sockets) = (up.pids(), up.sockets());
    assert_eq!(pids.len(), 4);
    up.stop().await;
    for (role, pid) in pids {
        assert!(!is_alive(pid).await, "{role} is still running");
    }
    assert!(!sockets.exists());
    assert_eq!(read_env(&test_folder.data()), None);
    assert!(!test_folder.data().join("env").exists());
}

#[tokio::test]
async fn second_up_on_same_folder_is_rejected() {
    let test_folder = TestFolder::new();
    let up = Running::start(&test_folder, &[]).await;
    let before = (up.env(), up.pids());
    let second = run(test_folder.command().args(["--listen", "127.0.0.1:1"])).await;
    let stderr = stderr_of_failure(&second);
    assert!(stderr.contains("already running"), "{stderr}");
    assert!(stderr.contains(&format!("pid {}", up.pid())), "{stderr}");
    assert!(stderr.contains(&format!("http://127.0.0.1:{}", test_folder.port)), "{stderr}");
    assert_eq!((up.env(), up.pids()), before);
    assert!(is_ready(test_folder.port).await);
    up.stop().await;
}

#[tokio::test]
async fn data_survives_a_restart_with_another_lock() {
    let test_folder = TestFolder::new();
    let up = Running::start(&test_folder, &[]).await;
    create_marker(&up.env()).await;
    up.stop().await;
    let up = Running::start(&test_folder, &[("HOLDFAST_LOCK", "none")]).await;
    assert!(up.line.contains("2 replicas, lock: none"), "{}", up.line);
    assert!(has_marker(&up.env()).await);
    up.stop().await;
}

/// Without `setpriv`, as on macOS, the children outlive a killed `up`.
#[tokio::test]
async fn next_up_cleans_up_after_a_kill() {
    let test_folder = TestFolder::new();
    let path = path_without_setpriv(&test_folder);
    let mut up = Running::start(&test_folder, &[("PATH", &path)]).await;
    create_marker(&up.env()).await;
    let (pids, sockets) = (up.pids(), up.sockets());
    send(pids[&format!("replica-{}", test_folder.port)], Signal::STOP);
    up.child.kill().await.expect("up is killed");
    assert!(is_alive(pids["postgres"]).await, "there is something to clean up");
    assert_eq!(
        read_env(&test_folder.data()),
        None,
        "the files of a killed `up` do not count as a running one"
    );

    let up = Running::start(&test_folder, &[]).await;
    for (role, pid) in pids {
        assert!(!is_alive(pid).await, "{role} is still running");
    }
    assert!(!sockets.exists());
    assert!(has_marker(&up.env()).await);
    up.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn children_do_not_outlive_a_killed_up() {
    let test_folder = TestFolder::new();
    let mut up = Running::start(&test_folder, &[]).await;
    let pids = up.pids();
    up.child.kill().await.expect("up is killed");
    for (role, pid) in pids {
        wait_until(&format!("{role} ends"), async || !is_alive(pid).await).await;
    }
    Running::start(&test_folder, &[]).await.stop().await;
}

#[tokio::test]
async fn crashed_services_are_restarted() {
    let test_folder = TestFolder::new();
    let up = Running::start(&test_folder, &[]).await;
    create_marker(&up.env()).await;
    let replica = format!("replica-{}", test_folder.port + 1);
    for role in [replica.as_str(), "postgres", "redis"] {
        let old = up.pids()[role];
        send(old, Signal::KILL);
        wait_until(&format!("{role} runs again"), async || up.pids()[role] != old).await;
        wait_until("both replicas are ready", async || {
            is_ready(test_folder.port).await && is_ready(test_folder.port + 1).await
        })
        .await;
    }
    wait_until("Postgres responds", async || reaches_postgres(&up.env()).await).await;
    assert!(has_marker(&up.env()).await);
    up.stop().await;
}

#[tokio::test]
async fn failed_start_stops_started_services() {
    let test_folder = TestFolder::new();
    // Postgres runs before Redis is started.
    let stub = test_folder.path.join("redis-server");
    fs::write(&stub, "#!/bin/sh\n[ $1 = --version ] && exit\necho 'the stub fails'\nexit 3\n")
        .expect("a file");
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:{}", test_folder.path.display(), std::env::var("PATH").expect("a PATH"));
    let stderr = stderr_of_failure(&run(test_folder.command().env("PATH", path)).await);
    assert!(stderr.contains("Redis ended before it was ready"), "{stderr}");
    assert!(stderr.contains("the stub fails"), "the log is quoted: {stderr}");
    assert!(!test_folder.data().join("pids").exists(), "everything was stopped");
    Running::start(&test_folder, &[]).await.stop().await;
}

#[tokio::test]
async fn missing_program_names_its_package() {
    let test_folder = TestFolder::new();
    let stderr = stderr_of_failure(
        &run(test_folder.command().env("HOLDFAST_PROGRAMS_PATH", "/nonexistent")).await,
    );
    assert!(stderr.contains("postgres is not installed"), "{stderr}");
    assert!(stderr.contains("Install the package `postgresql`"), "{stderr}");
}

#[tokio::test]
async fn taken_port_is_rejected_before_start() {
    let test_folder = TestFolder::new();
    let _taken = TcpListener::bind(("127.0.0.1", test_folder.port + 1)).expect("it is free");
    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    assert!(stderr.contains(&format!("127.0.0.1:{}", test_folder.port + 1)), "{stderr}");
    assert!(
        stderr.contains(&format!("--listen 127.0.0.1:{}", test_folder.port + 1_001)),
        "{stderr}"
    );
    assert!(!test_folder.data().exists());
}

#[tokio::test]
async fn invalid_settings_are_rejected_before_start() {
    let test_folder = TestFolder::new();
    for (variable, wrong, right) in [
        ("HOLDFAST_LOCK_TTL_MS", "0", "1000 to 600000"),
        ("HOLDFAST_PAY_WITHIN_S", "-5", "1 to 604800"),
        ("HOLDFAST_POOL_SIZE", "many", "1 to 500"),
        ("HOLDFAST_JOBS", "perhaps", "on, off"),
        ("HOLDFAST_LIMIT_CLIENT", "banana", "50/s:200"),
        ("HOLDFAST_TRUSTED_PROXIES", "all", "10.0.0.0/8"),
        ("HOLDFAST_REDIS_PREFIX", " ", "blank"),
    ] {
        let stderr = stderr_of_failure(&run(test_folder.command().env(variable, wrong)).await);
        assert!(stderr.contains(variable) && stderr.contains(right), "{stderr}");
        assert!(!stderr.contains("--"), "`up` has no such flag: {stderr}");
        assert!(!test_folder.data().exists(), "{variable}");
    }
}

#[tokio::test]
async fn lagging_sequence_is_rejected() {
    let test_folder = TestFolder::new();
    let up = Running::start(&test_folder, &[]).await;
    let mut postgres = PgConnection::connect(&up.env().database_url).await.expect("Postgres");
    let set_back = "select setval('stock_ledger_seq_seq', 1, false)";
    sqlx::query(set_back).execute(&mut postgres).await.expect("it is the owner's");
    drop(postgres);
    up.stop().await;

    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    for part in ["stock_ledger_seq_seq is behind its table", "postgres --single -D FOLDER"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert!(!test_folder.data().join("pids").exists(), "everything was stopped");
}

/// The replicas' own warnings are in their logs.
#[tokio::test]
async fn low_limit_of_files_is_named() {
    let test_folder = TestFolder::new();
    let script = r#"ulimit -n 256 && exec "$0" "$@""#;
    let up = test_folder.command();
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_holdfast"), "up"]);
    for (name, value) in up.as_std().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut up = Running::start_command(&test_folder, command).await;
    let mut stderr = up.child.stderr.take().expect("it is piped");
    up.stop().await;
    let mut printed = String::new();
    stderr.read_to_string(&mut printed).await.expect("it ended");
    let named = "may open 256 files, and a replica needs 144";
    assert_eq!(printed.matches(named).count(), 1, "{printed}");
}

#[tokio::test]
async fn public_address_requires_confirmation() {
    let test_folder = TestFolder::new();
    let open = format!("0.0.0.0:{}", test_folder.port);
    let stderr = stderr_of_failure(&run(test_folder.command().args(["--listen", &open])).await);
    assert!(stderr.contains("--demo-users-on-network"), "{stderr}");
    assert!(!test_folder.data().exists());
}

struct TestFolder {
    path: PathBuf,
    port: u16,
    _machine: SharedMachine,
}

impl TestFolder {
    fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Two concurrent runs of this file begin far apart; within one, each port is used once.
        let base = 20_000 + (std::process::id() % 400) as u16 * 30;
        let port = loop {
            let port = base + NEXT.fetch_add(2, Ordering::Relaxed) % 8_000;
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if free(port) && free(port + 1) {
                break port;
            }
        };
        // Not below target/, which may be closed to the user that Postgres runs as.
        let name = format!("hf-up-test-{}-{port}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new folder");
        Self { path, port, _machine: share_machine() }
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("up");
        command.env("HOLDFAST_LISTEN", format!("127.0.0.1:{}", self.port));
        command.env("HOLDFAST_LOCK", "owner").env("HOLDFAST_DATA", self.data());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A process `holdfast up` that is ready.
struct Running {
    child: Child,
    line: String,
    data: PathBuf,
}

impl Running {
    async fn start(test_folder: &TestFolder, environment: &[(&str, &str)]) -> Self {
        let mut command = test_folder.command();
        command.envs(environment.iter().copied());
        Self::start_command(test_folder, command).await
    }

    async fn start_command(test_folder: &TestFolder, mut command: Command) -> Self {
        let mut child = command.spawn().expect("holdfast starts");
        let out = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = timeout(TIMEOUT, BufReader::new(out).read_line(&mut line)).await;
        read.expect("it is ready in time").expect("it can be read");
        assert!(!line.is_empty(), "it ended before it was ready");
        Self { child, line: line.trim_end().to_owned(), data: test_folder.data() }
    }

    fn pid(&self) -> i32 {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).expect("it is running")
    }

    fn env(&self) -> RunningUp {
        read_env(&self.data).expect("it is ready")
    }

    /// Returns its children by role, as recorded for the next `up`.
    fn pids(&self) -> HashMap<String, i32> {
        let text = fs::read_to_string(self.data.join("pids")).expect("the file `pids`");
        let entries = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        entries
            .filter(|entry| !["folder", "sockets"].contains(&entry[0]))
            .map(|entry| (entry[0].to_owned(), entry[1].parse().expect("a pid")))
            .collect()
    }

    fn sockets(&self) -> PathBuf {
        let text = fs::read_to_string(self.data.join("pids")).expect("the file `pids`");
        let folder = text.lines().find_map(|line| line.strip_prefix("sockets "));
        PathBuf::from(folder.and_then(|line| line.rsplit(' ').next()).expect("the sockets' folder"))
    }

    async fn stop(mut self) {
        send(self.pid(), Signal::TERM);
        let status =
            timeout(TIMEOUT, self.child.wait()).await.expect("it stops").expect("a status");
        assert!(status.success(), "{status}");
    }
}

/// Returns a `PATH` without `setpriv`: children outlive a killed `up`, as on macOS.
fn path_without_setpriv(test_folder: &TestFolder) -> String {
    let programs = test_folder.path.join("bin");
    fs::create_dir(&programs).expect("a folder");
    for name in ["id", "ps", "sh"] {
        let programs_found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        let programs_found =
            programs_found.iter().find(|program| program.exists()).expect("a usual program");
        symlink(programs_found, programs.join(name)).expect("a link");
    }
    programs.to_str().expect("a plain path").to_owned()
}

async fn run(command: &mut Command) -> Output {
    let output = command.stderr(Stdio::piped()).output();
    timeout(TIMEOUT, output).await.expect("it ends").expect("it starts")
}

fn stderr_of_failure(output: &Output) -> String {
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "stdout is for results");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("it is ours");
}

/// Returns whether a process runs; a zombie does not.
async fn is_alive(pid: i32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().await;
    let output = output.expect("ps");
    let state = String::from_utf8_lossy(&output.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

async fn is_ready(port: u16) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    matches!(timeout(TIMEOUT, exchange).await, Ok(Ok(response)) if response.starts_with("HTTP/1.1 200"))
}

/// Polls until the condition holds. No order of events depends on the interval.
async fn wait_until(what: &str, holds: impl AsyncFn() -> bool) {
    let polling = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(TIMEOUT, polling).await.is_ok(), "timed out: {what}");
}

/// Asserts that both URLs work with the libraries, and the first also with psql.
async fn assert_services_respond(running: &RunningUp) {
    assert!(reaches_postgres(running).await);
    let client = redis::Client::open(running.redis_url.as_str()).expect("a Redis address");
    let mut redis = client.get_multiplexed_async_connection().await.expect("Redis");
    let pong: String = redis::cmd("PING").query_async(&mut redis).await.expect("an answer");
    assert_eq!(pong, "PONG");
    let mut psql = Command::new("psql");
    let output = psql.args([&running.database_url, "-Atc", "select 41 + 1"]).output().await;
    let output = output.expect("psql is part of Postgres");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "42");
}

async fn reaches_postgres(running: &RunningUp) -> bool {
    PgConnection::connect(&running.database_url).await.is_ok()
}

async fn create_marker(running: &RunningUp) {
    let mut postgres = PgConnection::connect(&running.database_url).await.expect("Postgres");
    sqlx::query("create table marker ()").execute(&mut postgres).await.expect("a table");
}

async fn has_marker(running: &RunningUp) -> bool {
    let mut postgres = PgConnection::connect(&running.database_url).await.expect("Postgres");
    sqlx::query("select from marker").execute(&mut postgres).await.is_ok()
}
