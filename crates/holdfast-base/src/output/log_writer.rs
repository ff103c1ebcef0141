//! Writes lines to stderr and stdout from a thread of its own, so that no other ever waits for
//! their reader.
//!
//! Guarantees: at most [`MAX_LINES`] wait; one more is dropped and counted, and a line says how
//! many were as soon as the reader goes on. A line that can't be written (a full disk, a closed
//! pipe) is lost. [`flush`] waits for a bounded time. Tests: `tests/it/log_reader.rs`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::Level;

use super::line_format::format_line;
use crate::metrics::define_metrics;

const MAX_LINES: usize = 4_096;

define_metrics! {
    LOG_LINES_DROPPED: "holdfast_log_lines_dropped_total", Counter [] &[],
        "Lines of the log that were dropped, because their reader did not read";
}

static LINES: OnceLock<SyncSender<(StandardStream, Vec<u8>)>> = OnceLock::new();
/// Lines that wait or are being written.
static PENDING: Mutex<u64> = Mutex::new(0);
static WRITTEN: Condvar = Condvar::new();
/// Lines that were dropped since it was last said.
static DROPPED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandardStream {
    Stdout,
    Stderr,
}

/// Starts the thread. Lines before that are lost.
pub(super) fn start() -> io::Result<()> {
    let (sender, lines) = sync_channel(MAX_LINES);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(&lines))?;
    // A second start changes nothing.
    let _ = LINES.set(sender);
    Ok(())
}

pub(super) fn write_line(output: StandardStream, line: &[u8]) {
    let Some(lines) = LINES.get() else { return };
    *PENDING.lock() += 1;
    if lines.try_send((output, line.to_owned())).is_err() {
        *PENDING.lock() -= 1;
        DROPPED.fetch_add(1, Ordering::Relaxed);
        metrics::counter!(LOG_LINES_DROPPED).increment(1);
    }
}

pub(super) fn flush(limit: Duration) {
    WRITTEN.wait_while_for(&mut PENDING.lock(), |pending| *pending > 0, limit);
}

fn write_lines(lines: &Receiver<(StandardStream, Vec<u8>)>) {
    // Not the handles of the standard library: while this thread waits for a reader, nothing else
    // waits for their locks.
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from).ok();
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from).ok();

    for (output, line) in lines {
        write(if output == StandardStream::Stdout { &stdout } else { &stderr }, &line);
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let text = format!(
                "{dropped} lines of the log were dropped, because their reader did not read"
            );
            write(&stderr, format_line(Level::WARN, &text).as_bytes());
        }

        *PENDING.lock() -= 1;
        WRITTEN.notify_all();
    }
}

fn write(file: &Option<File>, line: &[u8]) {
    if let Some(mut file) = file.as_ref() {
        // A log that can't be written is no reason to stop.
        let _ = file.write_all(line);
    }
}

/// The writer of the log's lines: each write is one line.
#[derive(Debug)]
pub struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(StandardStream::Stderr, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
