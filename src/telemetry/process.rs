//! The metrics of the process, under the names that Prometheus's own clients give them. Only Linux
//! has `/proc`; elsewhere they are absent.

use std::fs;
use std::sync::LazyLock;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use holdfast_base::metrics::define_metrics;

define_metrics! {
    PROCESS_CPU: "process_cpu_seconds_total", Counter [] &[],
        "Total user and system CPU time spent in seconds.";
    PROCESS_OPEN_FDS: "process_open_fds", Gauge [] &[],
        "Number of open file descriptors.";
    PROCESS_MAX_FDS: "process_max_fds", Gauge [] &[],
        "Maximum number of open file descriptors; 0 is unlimited.";
    PROCESS_VIRTUAL_MEMORY: "process_virtual_memory_bytes", Gauge [] &[],
        "Virtual memory size in bytes.";
    PROCESS_MAX_VIRTUAL_MEMORY: "process_virtual_memory_max_bytes", Gauge [] &[],
        "Maximum amount of virtual memory available in bytes; 0 is unlimited.";
    PROCESS_RESIDENT_MEMORY: "process_resident_memory_bytes", Gauge [] &[],
        "Resident memory size in bytes.";
    PROCESS_START_TIME: "process_start_time_seconds", Gauge [] &[],
        "Start time of the process since unix epoch in seconds.";
    PROCESS_THREADS: "process_threads", Gauge [] &[],
        "Number of OS threads in the process.";
}

/// In seconds since 1970.
static BOOT_TIME: LazyLock<Option<u64>> =
    LazyLock::new(|| boot_time(&fs::read_to_string("/proc/stat").ok()?));

/// Records what `/metrics` shows of the process.
pub fn record() {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let Some(usage) = stat.and_then(|stat| Usage::parse(&stat)) else { return };
    let ticks = clock_ticks_per_second();
    metrics::counter!(PROCESS_CPU).absolute(usage.cpu_ticks / ticks);
    metrics::gauge!(PROCESS_THREADS).set(usage.threads as f64);
    metrics::gauge!(PROCESS_VIRTUAL_MEMORY).set(usage.virtual_bytes as f64);
    metrics::gauge!(PROCESS_RESIDENT_MEMORY)
        .set((usage.resident_pages * page_size() as u64) as f64);
    if let Some(boot) = *BOOT_TIME {
        metrics::gauge!(PROCESS_START_TIME).set((boot + usage.start_ticks / ticks) as f64);
    }

    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        metrics::gauge!(PROCESS_OPEN_FDS).set(files.count() as f64);
    }
    metrics::gauge!(PROCESS_MAX_FDS).set(limit(Resource::Nofile));
    metrics::gauge!(PROCESS_MAX_VIRTUAL_MEMORY).set(limit(Resource::As));
}

/// Returns a limit of this process; 0 if there is none.
fn limit(resource: Resource) -> f64 {
    getrlimit(resource).current.unwrap_or(0) as f64
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Usage {
    cpu_ticks: u64,
    threads: u64,
    /// Since the boot.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Usage {
    /// The second field, the name, is arbitrary; `fields` are those behind it.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(11)? + number(12)?,
            threads: number(17)?,
            start_ticks: number(19)?,
            virtual_bytes: number(20)?,
            resident_pages: number(21)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_parsed_after_any_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 60 7 8 20 0 9 0 4242 8192 2 1";
        let usage = Usage {
            cpu_ticks: 210,
            threads: 9,
            start_ticks: 4242,
            virtual_bytes: 8192,
            resident_pages: 2,
        };
        assert_eq!(Usage::parse(stat), Some(usage));
        assert_eq!(Usage::parse("7 (a) S 1 7"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 9\n"), Some(1_700_000_000));
    }
}
