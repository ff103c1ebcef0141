//! The metrics of the process, under the names that Prometheus's own clients give them. Only Linux
//! has `/proc`; elsewhere they are absent.

use std::fs;
use std::sync::LazyLock;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use holdfast_base::metrics::define_metrics;
use holdfast_services::ProcessStat;

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
    let Some(usage) = stat.and_then(|stat| ProcessStat::parse(&stat)) else { return };
    let ticks = clock_ticks_per_second();
    metrics::counter!(PROCESS_CPU).absolute(usage.cpu_ticks / ticks);
    metrics::gauge!(PROCESS_THREADS).set(usage.threads as f64);
    metrics::gauge!(PROCESS_VIRTUAL_MEMORY).set(usage.virtual_bytes as f64);
    metrics::gauge!(PROCESS_RESIDENT_MEMORY)
        .set((usage.resident_pages * page_size() as u64) as f64);
    if let Some(boot) = *BOOT_TIME {
        metrics::gauge!(PROCESS_START_TIME).set((boot + usage.start / ticks) as f64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_is_parsed() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 9\n"), Some(1_700_000_000));
    }
}
