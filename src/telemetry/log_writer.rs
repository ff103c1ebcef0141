//! Writes lines to stderr and stdout from a thread of its own, so that no other ever waits for
//! their reader.
//!
//! Guarantees: at most [`MAX_LINES`] wait; one more is dropped and counted, and a line says how
//! many were as soon as the reader goes on. A line that can't be written (a full disk, a closed
//! pipe) is lost. [`flush`] waits for a bounded time. Tests: `tests/it/log_reader.rs`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use super::line_format::format_line;
use crate::metrics::LOG_LINES_DROPPED;

/// Lines that may wait for the thread, beside those that it is writing: more than a burst.
const MAX_LINES: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

/// The lines that wait for the thread, and how far it is.
#[derive(Debug)]
struct Queue {
    lines: Vec<(Output, Vec<u8>)>,
    /// Lines that were dropped since it was last said.
    dropped: u64,
    is_writing: bool,
}

#[derive(Debug)]
struct LogWriter {
    queue: Mutex<Queue>,
    arrived: Condvar,
    written: Condvar,
}

static WRITER: LogWriter = LogWriter {
    queue: Mutex::new(Queue { lines: Vec::new(), dropped: 0, is_writing: false }),
    arrived: Condvar::new(),
    written: Condvar::new(),
};

/// Starts the thread. Until then lines wait.
pub(super) fn start() -> io::Result<()> {
    let thread = std::thread::Builder::new().name("log".to_owned());
    thread.spawn(|| WRITER.run()).map(drop)
}

/// Adds a line, unless too many wait. Never waits.
pub(super) fn write_line(output: Output, line: &[u8]) {
    let mut queue = WRITER.queue.lock();
    if queue.lines.len() == MAX_LINES {
        queue.dropped += 1;
        metrics::counter!(LOG_LINES_DROPPED).increment(1);
        return;
    }
    queue.lines.push((output, line.to_owned()));
    WRITER.arrived.notify_one();
}

/// Waits until all lines are written, for at most `limit`.
pub(super) fn flush(limit: Duration) {
    let until = Instant::now() + limit;
    let mut queue = WRITER.queue.lock();
    while !queue.lines.is_empty() || queue.is_writing {
        if WRITER.written.wait_until(&mut queue, until).timed_out() {
            return;
        }
    }
}

impl LogWriter {
    fn run(&self) -> ! {
        // Not the handles of the standard library: while this thread waits for a reader, nothing
        // else waits for their locks.
        let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from).ok();
        let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from).ok();
        let write = |output: Output, text: &[u8]| {
            let file = if output == Output::Stdout { &stdout } else { &stderr };
            if let Some(mut file) = file.as_ref() {
                // A log that can't be written is no reason to stop.
                let _ = file.write_all(text);
            }
        };
        loop {
            let (lines, dropped) = self.take();
            for same_output in lines.chunk_by(|one, next| one.0 == next.0) {
                let lines: Vec<&[u8]> = same_output.iter().map(|(_, line)| &line[..]).collect();
                write(same_output[0].0, &lines.concat());
            }
            if dropped > 0 {
                let text = format!(
                    "{dropped} lines of the log were dropped, because their reader did not read"
                );
                write(Output::Stderr, format_line(Level::WARN, &text).as_bytes());
            }
            self.queue.lock().is_writing = false;
            self.written.notify_all();
        }
    }

    /// Waits for lines, and takes all of them.
    fn take(&self) -> (Vec<(Output, Vec<u8>)>, u64) {
        let mut queue = self.queue.lock();
        while queue.lines.is_empty() {
            self.arrived.wait(&mut queue);
        }
        queue.is_writing = true;
        (std::mem::take(&mut queue.lines), std::mem::take(&mut queue.dropped))
    }
}

/// The writer of the log's lines: each write is one line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(Output::Stderr, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LineWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}
