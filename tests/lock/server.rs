//! A Redis server for one test, and processes' worth of locks on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast::lock::fenced::Times;
use holdfast::lock::{Ask, Guards, Kind, LockKey, Locks, Outcome, Redis, Settings, Wait};
use rustix::process::{Pid, Signal, kill_process};

/// Short enough for a test, long enough for a busy machine.
pub const TTL: Duration = Duration::from_millis(900);

/// A redis-server in a folder of its own. It ends with the value.
pub struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("hl-").tempdir().unwrap();
        let child = spawn(folder.path());
        let server = Self { child, folder };
        server.wait_until_it_answers();
        server
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// What `command` answers, on a connection of its own.
    pub fn ask<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.try_ask(command).unwrap()
    }

    fn try_ask<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            cmd.arg(word);
        });
        cmd.query(&mut connection)
    }

    /// SIGKILL, and a new one without data.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.child = spawn(self.folder.path());
        self.wait_until_it_answers();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGSTOP and SIGCONT.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn wait_until_it_answers(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.try_ask::<String>("PING").is_err() {
            assert!(Instant::now() < deadline, "redis-server does not answer");
            std::thread::yield_now();
        }
    }

    /// A process's worth of locks, with a lease of [`TTL`].
    pub fn process(&self) -> Process {
        let times = Times { ttl: TTL, ..Times::default() };
        let settings = Settings { fenced: times, ..Settings::default() };
        Process(Locks::new(Redis::open(&self.url()).unwrap(), settings))
    }

    /// The keys that are there, but for the fences, which are kept a day.
    pub fn keys_left(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask("KEYS *");
        keys.retain(|key| !key.ends_with(":fence"));
        keys
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .arg("--unixsocket")
        .arg(folder.join("redis.sock"))
        .arg("--dir")
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed; script/bootstrap sees to it")
}

/// The locks of one process.
#[derive(Clone)]
pub struct Process(pub Locks);

impl Process {
    /// Asks for the fenced lock on `key`, for so long.
    pub async fn ask(&self, key: &str, wait: Wait, patience: Duration) -> Outcome {
        self.try_ask(&[key], wait, patience).await.unwrap()
    }

    pub async fn try_ask(
        &self,
        keys: &[&str],
        wait: Wait,
        patience: Duration,
    ) -> Result<Outcome, holdfast::lock::Error> {
        let keys: Vec<LockKey> = keys.iter().map(|key| LockKey::new(*key).unwrap()).collect();
        let deadline = tokio::time::Instant::now() + patience;
        let ask = Ask { kind: Kind::Fenced, wait, ttl: None, deadline, keys: &keys };
        self.0.acquire(ask).await
    }

    /// Waits for the lock and gets it.
    pub async fn take(&self, key: &str) -> Guards {
        match self.ask(key, Wait::Notify, Duration::from_secs(20)).await {
            Outcome::Acquired(guards) => guards,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the lock is free, without keeping it.
    pub async fn finds_it_free(&self, key: &str) -> bool {
        match self.ask(key, Wait::Try, Duration::from_secs(5)).await {
            Outcome::Acquired(guards) => {
                guards.release().await;
                true
            }
            _ => false,
        }
    }
}

/// The fence of the lock on `key` among the guards.
pub fn fence(guards: &Guards, key: &str) -> i64 {
    guards.fence(&LockKey::new(key).unwrap()).unwrap()
}

/// Asks again until `condition` holds.
pub async fn until<F: AsyncFnMut() -> bool>(what: &str, mut condition: F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Puts a task in line for `key` and returns when Redis knows it waits (or the process does).
pub async fn in_line(
    server: &Server,
    process: &Process,
    key: &'static str,
) -> tokio::task::JoinHandle<Guards> {
    let before: usize = server.ask(&format!("ZCARD holdfast:lock:{key}:queue"));
    let waiter = {
        let process = process.clone();
        tokio::spawn(async move { process.take(key).await })
    };
    until("it waits", async || {
        let queue: usize = server.ask(&format!("ZCARD holdfast:lock:{key}:queue"));
        queue > before
    })
    .await;
    waiter
}
