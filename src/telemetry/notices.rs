//! Lines that are not events of `tracing`: what a command announces, why it failed, panics.
//!
//! They have the format of the log (`HOLDFAST_LOG_FORMAT`), and no filter hides them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::time::Duration;

use tracing::Level;

use super::line_format::{format_line, is_json};
use super::log_writer::{self, Output};

/// Upper bound of the time that a reader who does not read delays the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The same after a panic, which does not end the process in most cases.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Prints a line to stdout: what the command has done, or that it is ready.
pub fn announce(message: &str) {
    let line = if is_json() { format_line(Level::INFO, message) } else { format!("{message}\n") };
    log_writer::write_line(Output::Stdout, line.as_bytes());
}

/// Prints the error that ends the command.
pub fn report_failure(message: &str) {
    let line = if is_json() {
        format_line(Level::ERROR, message)
    } else {
        format!("holdfast: {message}\n")
    };
    log_writer::write_line(Output::Stderr, line.as_bytes());
}

/// Prints to stderr what a command is doing.
pub fn print_progress(message: &str) {
    let line = if is_json() { format_line(Level::INFO, message) } else { format!("{message}\n") };
    log_writer::write_line(Output::Stderr, line.as_bytes());
}

/// Writes a panic to the log.
pub(super) fn log_panic(panic: &PanicHookInfo<'_>) {
    let line = format_line(Level::ERROR, &describe_panic(panic));
    log_writer::write_line(Output::Stderr, line.as_bytes());
    // What follows may be an abort.
    log_writer::flush(PANIC_FLUSH_TIMEOUT);
}

fn describe_panic(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = panic.payload_as_str().unwrap_or("no message");
    let description = format!("thread '{name}' panicked at {place}: {text}");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("{description}\n{backtrace}"),
        _ => description,
    }
}

/// When dropped, waits until everything is written, for at most [`FLUSH_TIMEOUT`].
#[derive(Debug)]
pub struct FlushOnDrop;

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        log_writer::flush(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, set_hook, take_hook};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn panics_are_described_with_thread_and_place() {
        let (sender, descriptions) = mpsc::channel();
        let hook = take_hook();
        set_hook(Box::new(move |panic| sender.send(describe_panic(panic)).unwrap()));
        let panicked = catch_unwind(|| panic!("out of {}", "tea"));
        set_hook(hook);
        assert!(panicked.is_err());
        let is_ours = |text: &String| text.contains("out of tea");
        let description = descriptions.iter().find(is_ours).unwrap();
        assert!(description.starts_with("thread '"), "{description}");
        assert!(description.contains("src/telemetry/notices.rs:"), "{description}");
    }
}
