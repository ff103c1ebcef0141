//! The processor time that a shop's processes have used, by what they are. From `/proc`: on Linux
//! only.

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

impl CpuTime {
    /// Returns what the processes below an `up` have used so far; `None` without `/proc`, and if a
    /// part has used nothing: its processes are then not known by their names.
    pub fn below(up: i32) -> Option<Self> {
        let total = sum(&ProcessStat::all(), up);
        let parts = [total.postgres, total.replicas, total.redis];
        parts.iter().all(|used| !used.is_zero()).then_some(total)
    }
}

fn sum(table: &[ProcessStat], root: i32) -> CpuTime {
    // The replicas are the program that `up` is; its file may have any name.
    let program = table.iter().find(|process| process.pid == root).map(|up| up.name.as_str());
    let mut total = CpuTime::default();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in table.iter().filter(|process| process.parent == parent) {
            parents.push(child.pid);
            let used = match child.name.as_str() {
                "postgres" => &mut total.postgres,
                "redis-server" | "valkey-server" => &mut total.redis,
                name if Some(name) == program => &mut total.replicas,
                _ => continue,
            };
            let ticks = child.cpu_ticks + child.child_cpu_ticks;
            *used += Duration::from_secs(ticks) / clock_ticks_per_second() as u32;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_summed_by_their_names() {
        let process = |pid: i32, name: &str, parent: i32, seconds: u64| {
            let name = name.to_owned();
            // Half of it of children that ended.
            let [cpu_ticks, child_cpu_ticks] = [seconds * clock_ticks_per_second() / 2; 2];
            ProcessStat { pid, name, parent, cpu_ticks, child_cpu_ticks, ..ProcessStat::default() }
        };
        // A backend comes before its postmaster; 7 is of another shop.
        let table = [
            process(12, "postgres", 11, 8),
            process(10, "renamed", 1, 100),
            process(11, "postgres", 10, 4),
            process(13, "valkey-server", 10, 12),
            process(14, "redis-server", 10, 16),
            process(15, "renamed", 10, 20),
            process(7, "postgres", 1, 100),
        ];
        let seconds = Duration::from_secs;
        let expected = CpuTime { postgres: seconds(12), replicas: seconds(20), redis: seconds(28) };
        assert_eq!(sum(&table, 10), expected);
    }
}
