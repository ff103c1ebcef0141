//! The processor time that a shop's processes have used, by what they are. From `/proc`: on Linux
//! only.

use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use super::process_info::ProcessStat;

/// Processor time in user and kernel mode, of running processes and of their children that ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub postgres: Duration,
    pub replicas: Duration,
    /// All servers, including the nodes of a quorum.
    pub redis: Duration,
}

/// The processes below an `up`, which is not one of them.
#[derive(Debug, Clone, Copy)]
pub struct ProcessTree {
    pub(super) root: i32,
}

impl ProcessTree {
    /// Returns what its processes have used so far; `None` without `/proc`, and if a part has used
    /// nothing: its processes are then not known by their names.
    pub fn cpu_time(&self) -> Option<CpuTime> {
        let files = fs::read_dir("/proc").ok()?.flatten().filter_map(|folder| {
            folder.file_name().to_str()?.parse::<i32>().ok()?;
            // Processes may end meanwhile.
            fs::read_to_string(folder.path().join("stat")).ok()
        });
        let files: Vec<String> = files.collect();
        let total = sum(&files, self.root);
        let parts = [total.postgres, total.replicas, total.redis];
        parts.iter().all(|used| !used.is_zero()).then_some(total)
    }
}

fn sum(files: &[String], root: i32) -> CpuTime {
    let parsed = files.iter().filter_map(|file| Some((name(file)?, ProcessStat::parse(file)?)));
    let table: Vec<(&str, ProcessStat)> = parsed.collect();
    // The replicas are the program that `up` is, whatever its file is called.
    let program = table.iter().find(|(_, process)| process.pid == root).map(|(name, _)| *name);
    let mut total = CpuTime::default();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (name, child) in table.iter().filter(|(_, process)| process.parent == parent) {
            parents.push(child.pid);
            let used = match *name {
                "postgres" => &mut total.postgres,
                "redis-server" | "valkey-server" => &mut total.redis,
                name if Some(name) == program => &mut total.replicas,
                _ => continue,
            };
            *used += Duration::from_secs(child.cpu_ticks) / clock_ticks_per_second() as u32;
        }
    }
    total
}

fn name(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_summed_by_their_names() {
        let ticks = clock_ticks_per_second();
        let stat = |pid: i32, name: &str, parent: i32, seconds: u64| {
            // A quarter each in user and kernel mode, of itself and of children that ended.
            let part = seconds * ticks / 4;
            let times = format!("{part} {part} {part} {part}");
            format!("{pid} ({name}) S {parent} 1 1 0 -1 0 1 2 3 4 {times} 20 0 1 0 99 9 9")
        };
        // A backend comes before its postmaster; 7 is of another shop.
        let files = [
            stat(12, "postgres", 11, 8),
            stat(10, "renamed", 1, 100),
            stat(11, "postgres", 10, 4),
            stat(13, "valkey-server", 10, 12),
            stat(14, "redis-server", 10, 16),
            stat(15, "renamed", 10, 20),
            stat(7, "postgres", 1, 100),
        ];
        let seconds = Duration::from_secs;
        let expected = CpuTime { postgres: seconds(12), replicas: seconds(20), redis: seconds(28) };
        assert_eq!(sum(&files, 10), expected);
    }
}
