//! Description of the machine that was measured.

use std::fs::{File, read_to_string};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use holdfast_lock::clock::monotonic_us;
use serde::Serialize;
use time::format_description::well_known::Rfc3339;

use super::harness::Harness;
use crate::stats::median;

const FSYNC_PERIOD: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Serialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) holdfast: &'static str,
    /// True if the program was built without debug assertions.
    pub(super) optimised: bool,
    pub(super) cores: usize,
    pub(super) cpu: Option<String>,
    pub(super) memory_mb: Option<u64>,
    pub(super) system: String,
    pub(super) postgres: String,
    pub(super) redis: String,
    /// Median time to write and sync 8 KB on the disk of Postgres' data.
    pub(super) fsync_us: u64,
    /// Maximum of the same within two seconds: the wait of every commit that shares that sync.
    pub(super) fsync_longest_ms: u64,
    /// One-minute load average before the benchmark: shows other load on the machine.
    pub(super) load_average: Option<f64>,
}

pub(super) async fn describe(folder: &Path, harness: &mut Harness) -> anyhow::Result<Machine> {
    let load_average = read_to_string("/proc/loadavg").ok();
    let postgres: String = {
        let mut connection = harness.pool.acquire().await.map_err(|(_, error)| error)?;
        sqlx::query_scalar("show server_version").fetch_one(&mut *connection).await?
    };
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut harness.redis[0]).await?;
    let folder = folder.to_owned();
    let (fsync_us, fsync_longest_us) =
        tokio::task::spawn_blocking(move || measure_fsync(&folder)).await??;
    Ok(Machine {
        date: time::OffsetDateTime::now_utc().format(&Rfc3339)?,
        holdfast: env!("CARGO_PKG_VERSION"),
        optimised: !cfg!(debug_assertions),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        cpu: field("/proc/cpuinfo", "model name"),
        memory_mb: field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kb| kb / 1_024),
        system: system(),
        postgres: postgres.split(' ').next().unwrap_or_default().to_owned(),
        redis: redis_version(&info),
        fsync_us,
        fsync_longest_ms: fsync_longest_us / 1_000,
        load_average: load_average.and_then(|text| text.split(' ').next()?.parse().ok()),
    })
}

/// Returns the value of the first line that begins with `name`, in a file of `name : value` lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn system() -> String {
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Without the distribution's suffix.
    let release = release.trim().split('-').next().unwrap_or_default();
    let words = [std::env::consts::OS, release, std::env::consts::ARCH];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn redis_version(info: &str) -> String {
    let value = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name));
    match (value("valkey_version:"), value("redis_version:")) {
        (Some(valkey), _) => format!("Valkey {valkey}"),
        (None, redis) => format!("Redis {}", redis.unwrap_or("?")),
    }
}

/// Returns the median and the maximum duration of a sync, in microseconds.
fn measure_fsync(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let path = folder.join("fsync");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    let mut now = monotonic_us();
    let until = now + FSYNC_PERIOD.as_micros() as u64;
    while now < until {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[b'x'; 8 << 10])?;
        file.sync_data()?;
        times.push(monotonic_us() - now);
        now = monotonic_us();
    }
    std::fs::remove_file(&path)?;
    let longest = times.iter().copied().max().unwrap_or(0);
    Ok((median(&mut times).unwrap_or(0), longest))
}
