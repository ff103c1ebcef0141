//! One `holdfast serve`, as a process that can be killed and stopped.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::client::BaseUrls;
use crate::program;

/// A running replica. It ends with the value.
pub struct Replica {
    pub base_url: String,
    child: Child,
}

impl Replica {
    /// Starts one on a free port and waits until it listens.
    pub fn start(env: &[(&str, &str)]) -> Self {
        Self::run(Command::new(program()), env)
    }

    /// The same, with a soft limit of open files.
    pub fn start_with_file_limit(files: usize, env: &[(&str, &str)]) -> Self {
        Self::run(limited("-Sn", files), env)
    }

    /// The same, with a limit of open files that it cannot raise. Its log is appended to a file.
    pub fn start_with_all_files_limited(files: usize, log: &Path, env: &[(&str, &str)]) -> Self {
        let mut command = limited("-n", files);
        command.stderr(File::options().append(true).create(true).open(log).unwrap());
        Self::run(command, env)
    }

    pub fn start_with_log(log: &Path, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.stderr(File::options().append(true).create(true).open(log).unwrap());
        Self::run(command, env)
    }

    /// Starts one with these flags. The error is what it printed before it exited.
    pub fn try_start(flags: &[&str], env: &[(&str, &str)]) -> Result<Self, String> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(program());
        command.arg("serve").args(flags).stderr(log.reopen().unwrap());
        Self::try_run(command, env).map_err(|_| std::fs::read_to_string(log.path()).unwrap())
    }

    fn run(mut command: Command, env: &[(&str, &str)]) -> Self {
        command.arg("serve");
        let run = Self::try_run(command, env);
        run.unwrap_or_else(|line| panic!("the replica did not start: {line:?}"))
    }

    /// The error is its first line, which names no address.
    fn try_run(mut command: Command, env: &[(&str, &str)]) -> Result<Self, String> {
        command
            .env("HOLDFAST_LISTEN", "127.0.0.1:0")
            .env("HOLDFAST_LOG", "holdfast=warn,error")
            .env("HOLDFAST_DRAIN_S", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        for (name, value) in env {
            command.env(name, value);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.split_whitespace().find(|word| word.starts_with("http://")) {
            Some(base_url) => Ok(Self { base_url: base_url.to_owned(), child }),
            None => {
                child.wait().unwrap();
                Err(line)
            }
        }
    }

    /// Its name in responses: its port.
    pub fn name(&self) -> &str {
        self.base_url.rsplit_once(':').unwrap().1
    }

    /// SIGKILL, and waits for the exit.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGSTOP, and waits until all threads are stopped. It keeps its locks and connections.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), stopped).unwrap();
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGHUP, e.g. of a terminal that is closed.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    pub fn send_kill(&self) {
        self.signal(Signal::KILL);
    }

    pub async fn wait_for_exit(&mut self) -> bool {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }
}

/// The replicas of a shop. Their addresses are shared with the users of the shop.
#[derive(Default)]
pub struct Replicas {
    list: Vec<Replica>,
    pub base_urls: BaseUrls,
}

impl Replicas {
    pub fn push(&mut self, replica: Replica) {
        self.base_urls.write().push(replica.base_url.clone());
        self.list.push(replica);
    }

    pub fn remove(&mut self, index: usize) -> Replica {
        self.base_urls.write().remove(index);
        self.list.remove(index)
    }

    /// Ends all but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.base_urls.write().truncate(count);
        self.list.truncate(count);
    }

    /// Ends all of them.
    pub fn clear(&mut self) {
        self.truncate(0);
    }
}

impl Deref for Replicas {
    type Target = [Replica];

    fn deref(&self) -> &[Replica] {
        &self.list
    }
}

impl DerefMut for Replicas {
    fn deref_mut(&mut self) -> &mut [Replica] {
        &mut self.list
    }
}

/// The program behind `ulimit`.
fn limited(limit: &str, files: usize) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit {limit} {files} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script]).arg(program());
    shell
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
