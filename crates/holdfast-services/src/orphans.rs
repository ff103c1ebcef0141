//! Finds the processes that a killed `up` left running, and ends them.
//!
//! Guarantees that only processes that an `up` on this folder started are signalled. The file
//! `pids` names its data folder by inode, so that it proves nothing in a copy. A process is proven
//! by its start time (a reused pid has another one, or the machine another boot), and by its own
//! data folder or argument; not by its program file, which an upgrade may have replaced. Does not
//! find a child whose `up` was killed between starting and recording it; on Linux that child ended
//! with its parent (`process.rs`).

use std::cell::RefCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::identity::FolderId;
use super::owned::{file, read_if_exists, write_private};
use super::process_info::{has_argument, start_of, uses_folder};
use super::services_dir::ServicesDir;
use super::sockets;
use holdfast_base::output::print_progress;

/// Grace period after a signal: Postgres writes a checkpoint.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
const FOLDER: &str = "folder ";
const SOCKETS: &str = "sockets ";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process; its start time distinguishes it from others with the same pid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegisteredChild {
    role: String,
    pid: i32,
    start: String,
}

/// The running children, recorded in the file `pids` of the data folder for the next `up`.
#[derive(Debug)]
pub(super) struct ChildRegistry {
    path: PathBuf,
    sockets: PathBuf,
    head: String,
    /// In the order in which they were first started.
    children: RefCell<Vec<RegisteredChild>>,
}

impl ChildRegistry {
    /// Records the sockets' folder; call [`terminate_all`] first.
    pub(super) fn new(data: &Path, sockets: &Path) -> Result<Self> {
        let data_id = FolderId::of(data)?;
        let sockets_id = FolderId::of(sockets)?;
        let head = format!("{FOLDER}{data_id}\n{SOCKETS}{sockets_id} {}\n", sockets.display());
        let path = data.join("pids");
        let registry = Self { path, sockets: sockets.into(), head, children: RefCell::default() };
        // Also without children: the next `up` removes the sockets of one that is killed from here.
        registry.write()?;
        Ok(registry)
    }

    /// Records a child that was just started, in place of its predecessor.
    pub(super) fn record_child(&self, role: &str, pid: u32) -> Result<()> {
        let pid = i32::try_from(pid).unwrap_or_default();
        // Without a start time it has exited already, which its supervisor reports.
        let Some(start) = start_of(pid) else { return Ok(()) };
        let child = RegisteredChild { role: role.to_owned(), pid, start };

        let mut children = self.children.borrow_mut();
        match children.iter_mut().find(|other| other.role == role) {
            Some(predecessor) => *predecessor = child,
            None => children.push(child),
        }
        drop(children);
        self.write()
    }

    pub(super) fn clear(&self) {
        sockets::remove(&self.sockets);
        // Last: until then the next `up` finds here what is left.
        let _ = fs::remove_file(&self.path);
    }

    fn write(&self) -> Result<()> {
        let mut text = self.head.clone();
        for RegisteredChild { role, pid, start } in &*self.children.borrow() {
            text += &format!("{role} {pid} {start}\n");
        }
        write_private(&self.path, text.as_bytes())
    }
}

/// Ends what the last `up` on this folder left, replicas first, Postgres last; waits for each. Then
/// `services` is free for new services, or the error says why not.
pub(super) async fn terminate_all(data: &Path, services: &mut ServicesDir) -> Result<()> {
    let path = data.join("pids");
    let recorded = read_if_exists(&path)?;
    if let Some(contents) = &recorded {
        let text = String::from_utf8_lossy(contents);
        if line(&text, FOLDER).and_then(FolderId::parse) == Some(FolderId::of(data)?) {
            terminate_recorded(&text, &services.path).await?;
        }
    }

    let stale = stale_pid_file(&services.path.join("postgres"))?;
    services.lock_for_services().await?;
    if recorded.is_some() {
        let _ = fs::remove_file(data.join("env"));
        // Not before all have ended: one that doesn't is still recorded at the next attempt.
        fs::remove_file(&path).map_err(file("cannot remove", &path))?;
    }
    if let Some(stale) = stale {
        print_progress(&format!("removing {}, left by a killed Postgres", stale.display()));
        // It may have ended by itself, in another container.
        match fs::remove_file(&stale) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            outcome => outcome.map_err(file("cannot remove", &stale))?,
        }
    }
    Ok(())
}

async fn terminate_recorded(text: &str, services: &Path) -> Result<()> {
    let Some((sockets_id, sockets)) = line(text, SOCKETS).and_then(|line| line.split_once(' '))
    else {
        return Ok(());
    };
    let sockets = Path::new(sockets);

    // Recorded in the order of starting, so ended in reverse.
    for child in text.lines().rev().filter_map(RegisteredChild::parse) {
        let RegisteredChild { role, pid, .. } = &child;
        let is_ours = has_argument(*pid, sockets) || uses_folder(*pid, &services.join(role));
        if child.is_alive() && is_ours {
            print_progress(&format!("ending {role} (pid {pid}), left by a killed `up`"));
            child.end().await?;
        }
    }

    // A path alone proves nothing.
    let created = FolderId::parse(sockets_id);
    if created.is_some() && FolderId::of(sockets).ok() == created {
        sockets::remove(sockets);
    }
    Ok(())
}

/// Returns a `postmaster.pid` whose pid belongs to another process: Postgres refuses to start while
/// any process of its user has that pid. Fails if it is a Postgres of this cluster. Sessions that
/// outlive their postmaster hold the services' lock, and also prevent a start: Postgres finds their
/// shared memory by the inode of the cluster.
fn stale_pid_file(cluster: &Path) -> Result<Option<PathBuf>> {
    let path = cluster.join("postmaster.pid");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    let Some(pid) = text.lines().next().and_then(|line| line.trim().parse().ok()) else {
        return Ok(None);
    };
    // Postgres itself removes the file of a process that has ended.
    if start_of(pid).is_none() {
        return Ok(None);
    }

    ensure!(
        !uses_folder(pid, cluster),
        "a Postgres that this `up` has not started runs on {} (pid {pid}). Stop it with `kill -INT \
         {pid}`",
        cluster.display()
    );
    Ok(Some(path))
}

fn line<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(prefix))
}

impl RegisteredChild {
    /// Parses a line of `pids`; `None` if it names no child.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        Some(Self {
            role: words.next()?.to_owned(),
            pid: words.next()?.parse().ok()?,
            start: words.next()?.to_owned(),
        })
    }

    fn is_alive(&self) -> bool {
        start_of(self.pid).is_some_and(|start| start == self.start)
    }

    /// Signals the process, unless it has ended: then its pid may be another's.
    fn send(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            let _ = kill_process(pid, signal);
        }
    }

    async fn end(&self) -> Result<()> {
        let Self { role, pid, .. } = self;
        // On TERM Postgres waits for its clients; INT closes them.
        let polite = if role == "postgres" { Signal::INT } else { Signal::TERM };
        for signal in [polite, Signal::KILL] {
            // A process that a lesson has paused handles no signal before this one.
            self.send(Signal::CONT);
            self.send(signal);

            let until = Instant::now() + GRACE_PERIOD;
            while self.is_alive() && Instant::now() < until {
                sleep(POLL_INTERVAL).await;
            }

            if !self.is_alive() {
                return Ok(());
            }
        }
        bail!("{role} (pid {pid}), left by a killed `up`, does not end. Was it started as root?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_pid_file_is_parsed() {
        let child = RegisteredChild { role: "redis".into(), pid: 12, start: "boot 34".into() };
        assert_eq!(RegisteredChild::parse("redis 12 boot 34"), Some(child));
        assert_eq!(RegisteredChild::parse("sockets 1:2:3 /tmp/holdfast-1"), None);
    }

    #[test]
    fn restarted_child_keeps_its_place() {
        let folder = tempfile::tempdir().expect("a new folder");
        let data = folder.path();
        let registry = ChildRegistry::new(data, data).expect("it can be written");
        for role in ["postgres", "redis", "postgres"] {
            registry.record_child(role, std::process::id()).expect("it can be written");
        }
        let text = fs::read_to_string(data.join("pids")).expect("it was written");
        let recorded: Vec<String> =
            text.lines().filter_map(RegisteredChild::parse).map(|child| child.role).collect();
        assert_eq!(recorded, ["postgres", "redis"]);
    }

    #[test]
    fn reused_pid_is_not_alive() {
        let pid = i32::try_from(std::process::id()).expect("pids are small");
        let start = start_of(pid).expect("we are alive");
        let own = RegisteredChild { role: "us".into(), pid, start };
        assert!(own.is_alive());
        let other = RegisteredChild { start: "another boot 1".into(), ..own };
        assert!(!other.is_alive());
    }
}
