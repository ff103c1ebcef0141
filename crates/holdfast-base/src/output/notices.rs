//! Lines that are not events of `tracing`: what a command announces, why it failed, panics.
//!
//! They have the format of the log (`HOLDFAST_LOG_FORMAT`: text, or one JSON object per line), and
//! no filter hides them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::time::Duration;

use tracing::Level;

use super::line_format::{format_line, is_json};
use super::log_writer::{self, StandardStream};

/// Upper bound of the time that a reader who does not read delays the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The same after a panic, which does not end the process in most cases.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Starts the thread that writes all lines. Reports panics as lines.
pub fn start_writer() -> std::io::Result<()> {
    std::panic::set_hook(Box::new(log_panic));
    log_writer::start()
}

/// Prints a line to stdout: what the command has done, or that it is ready.
pub fn announce(message: &str) {
    print(StandardStream::Stdout, Level::INFO, message, "");
}

/// Prints the error that ends the command.
pub fn report_failure(message: &str) {
    print(StandardStream::Stderr, Level::ERROR, message, "holdfast: ");
}

/// Prints to stderr what a command is doing.
pub fn print_progress(message: &str) {
    print(StandardStream::Stderr, Level::INFO, message, "");
}

fn print(output: StandardStream, level: Level, message: &str, prefix_of_text: &str) {
    let line = match is_json() {
        true => format_line(level, message),
        false => format!("{prefix_of_text}{message}\n"),
    };
    log_writer::write_line(output, line.as_bytes());
}

/// Waits until everything is written, for at most [`FLUSH_TIMEOUT`].
pub fn flush() {
    log_writer::flush(FLUSH_TIMEOUT);
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let line = format_line(Level::ERROR, &describe_panic(panic));
    log_writer::write_line(StandardStream::Stderr, line.as_bytes());
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
        assert!(
            description.contains("crates/holdfast-base/src/output/notices.rs:"),
            "{description}"
        );
    }
}
