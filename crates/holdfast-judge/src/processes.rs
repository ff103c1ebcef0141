//! The tree of a worker: its process group and all descendants of these, as an adapter may be in a
//! group or a session of its own. On Linux judge and workers adopt their descendants' orphans, so
//! that a process which an adapter detached stays in the tree. Elsewhere the tree is the group.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::time::Duration;

use anyhow::bail;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, waitpid,
};
use tokio::time::{Instant, sleep};

use holdfast_base::message;
use holdfast_base::messages::Message;
use holdfast_services::ProcessStat;

const POLL_INTERVAL: Duration = Duration::from_millis(2);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two looks at a process, which has no library while it starts, and their number.
const LOAD_INTERVAL: Duration = Duration::from_millis(50);
const LOAD_LOOKS: u32 = 4;
/// Part of a program's file in which Go places its note.
const NOTES_BYTES: u64 = 64 << 10;

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

/// Stops the worker's tree; returns when none of its processes runs, and fails if one still does
/// after ten seconds. A process in the state D runs no code of its own before it stops: with
/// `vfork`, not before its stopped child.
pub(super) async fn stop_tree(leader: i32) -> anyhow::Result<()> {
    signal_group(leader, Signal::STOP);
    let until = Instant::now() + STOP_TIMEOUT;
    let mut signalled = BTreeSet::new();
    // The table is read entry by entry: a process may have forked behind the reader.
    let mut quiet_tables = 0;
    loop {
        let is_stopped =
            |entry: &ProcessStat| signalled.contains(&entry.pid) && "TtDZX".contains(entry.state);
        let running = tree(leader).into_iter().filter(|entry| !is_stopped(entry));
        let running: Vec<i32> = running.map(|entry| entry.pid).collect();

        quiet_tables = if running.is_empty() { quiet_tables + 1 } else { 0 };
        if quiet_tables == 2 {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the processes {running:?} of a worker don't stop");
        }

        if !running.is_empty() {
            running.iter().for_each(|pid| signal_process(*pid, Signal::STOP));
            signalled.extend(running);
            sleep(POLL_INTERVAL).await;
        }
    }
}

pub(super) fn signal_tree(leader: i32, signal: Signal) {
    // Read before a signal that ends the leader, with which the tree falls apart.
    let tree = tree(leader);
    signal_group(leader, signal);
    let others = tree.iter().filter(|entry| entry.group != leader);
    others.for_each(|entry| signal_process(entry.pid, signal));
}

pub(super) fn signal_process(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns why the clock of an adapter can't jump: one of its processes does not load libfaketime,
/// or is of Go, which asks the kernel. `None` if all clocks can.
pub(super) async fn find_fixed_clock(leader: i32) -> Option<Message> {
    let mut suspects: Option<BTreeSet<i32>> = None;
    for look in 0..LOAD_LOOKS {
        if look > 0 {
            sleep(LOAD_INTERVAL).await;
        }
        let adapter = tree(leader).into_iter().filter(|entry| entry.pid != leader);
        let fixed: BTreeSet<i32> = adapter
            .filter(|entry| !"ZX".contains(entry.state))
            .map(|entry| entry.pid)
            .filter(|pid| suspects.as_ref().is_none_or(|suspects| suspects.contains(pid)))
            .filter(|pid| is_of_go(*pid) || !loads_faketime(*pid))
            .collect();
        if fixed.is_empty() {
            return None;
        }
        suspects = Some(fixed);
    }

    let pid = suspects?.pop_first()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let program = name.trim_end();
    Some(match is_of_go(pid) {
        true => message!("judge-why-go", program),
        false => message!("judge-why-not-loaded", program),
    })
}

fn loads_faketime(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("libfaketime"))
}

fn is_of_go(pid: i32) -> bool {
    let mut start = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/exe"));
    let read = file.and_then(|file| file.take(NOTES_BYTES).read_to_end(&mut start));
    read.is_ok() && has_go_note(&start)
}

/// Returns whether the start of a program has the ELF note with Go's build id.
fn has_go_note(program: &[u8]) -> bool {
    // Length of the name, length of the id, type, name.
    program.windows(16).any(|note| {
        note[..4] == 4_u32.to_ne_bytes()
            && note[8..12] == 4_u32.to_ne_bytes()
            && &note[12..] == b"Go\0\0"
    })
}

/// Kills and reaps all children of this process but `known`.
pub(super) async fn end_orphans(known: Option<u32>) {
    let me = getpid().as_raw_nonzero().get();
    // The table is read entry by entry: a child may have become an orphan behind the reader.
    let mut empty_tables = 0;
    while empty_tables < 2 {
        let orphans: Vec<i32> = ProcessStat::all()
            .iter()
            .filter(|entry| entry.parent == me && known != Some(entry.pid.unsigned_abs()))
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

/// Returns the process group of `leader` and all descendants of these.
fn tree(leader: i32) -> Vec<ProcessStat> {
    select_tree(&ProcessStat::all(), leader)
}

fn select_tree(table: &[ProcessStat], leader: i32) -> Vec<ProcessStat> {
    let mut pids = BTreeSet::new();
    loop {
        let others = table.iter().filter(|entry| !pids.contains(&entry.pid));
        let found: Vec<i32> = others
            .filter(|entry| {
                let belongs = entry.pid == leader || entry.group == leader;
                belongs || pids.contains(&entry.parent)
            })
            .map(|entry| entry.pid)
            .collect();
        // Again and again, as a child may stand before its parent.
        if found.is_empty() {
            return table.iter().filter(|entry| pids.contains(&entry.pid)).cloned().collect();
        }
        pids.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_has_descendants_outside_the_group() {
        let entry =
            |(pid, parent, group)| ProcessStat { pid, parent, group, ..ProcessStat::default() };
        // A grandchild comes before its parent; 30 is of the group, 40 of another worker.
        let table = [(7, 21, 7), (20, 1, 20), (21, 20, 21), (30, 1, 20), (40, 1, 40), (41, 40, 41)];
        let tree = select_tree(&table.map(entry), 20);
        assert_eq!(tree.iter().map(|entry| entry.pid).collect::<Vec<_>>(), [7, 20, 21, 30]);
    }

    #[test]
    fn go_program_is_known_by_its_note() {
        let note = b"\x7fELF\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0id";
        assert!(has_go_note(note) && !has_go_note(&note[..19]));
    }
}
