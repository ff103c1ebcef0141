//! Processes below the judge: what a process group does, and orphans that left theirs.
//!
//! On Linux the judge adopts the orphans of its descendants, so that a process which an adapter
//! detached from its group ends with the judgement, too. Elsewhere only groups are ended.

use std::fs;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, waitpid,
};
use tokio::time::sleep;

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A line of the process table.
#[derive(Debug, Clone, Copy)]
struct ProcessEntry {
    pid: i32,
    state: char,
    parent: i32,
    group: i32,
}

/// Makes this process the parent of its descendants' orphans.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Sends a signal to a process group whose leader was not reaped yet.
pub(super) fn signal_group(leader: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(leader) {
        let _ = kill_process_group(group, signal);
    }
}

/// Waits until no process of the group runs, because all are stopped or dead.
pub(super) async fn wait_stopped(leader: i32) {
    let runs = |entry: &ProcessEntry| entry.group == leader && !"TtZX".contains(entry.state);
    while process_table().iter().any(runs) {
        sleep(POLL_INTERVAL).await;
    }
}

/// Kills and reaps all children of this process but those of `known`.
pub(super) async fn end_orphans(known: &[u32]) {
    let me = getpid().as_raw_nonzero().get();
    let is_known = |pid: i32| known.contains(&pid.unsigned_abs());
    // The table is read entry by entry: a child may have become an orphan behind the reader.
    let mut empty_tables = 0;
    while empty_tables < 2 {
        let orphans: Vec<i32> = process_table()
            .iter()
            .filter(|entry| entry.parent == me && !is_known(entry.pid))
            .map(|entry| entry.pid)
            .collect();
        if orphans.is_empty() {
            empty_tables += 1;
            continue;
        }
        empty_tables = 0;
        for pid in orphans.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Reads `/proc`; empty where it does not exist.
fn process_table() -> Vec<ProcessEntry> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = folders.filter_map(|folder| {
        let pid: i32 = folder.file_name().to_str()?.parse().ok()?;
        parse_stat(pid, &fs::read_to_string(folder.path().join("stat")).ok()?)
    });
    stats.collect()
}

/// Parses `/proc/<pid>/stat`; its second field, the name, is arbitrary.
fn parse_stat(pid: i32, stat: &str) -> Option<ProcessEntry> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(ProcessEntry {
        pid,
        state,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_parsed_after_any_process_name() {
        let entry = parse_stat(7, "7 (a) b (c) T 3 5 7 0 -1").expect("it is whole");
        assert_eq!((entry.state, entry.parent, entry.group), ('T', 3, 5));
    }
}
