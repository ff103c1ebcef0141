//! Lines that are not events of `tracing`: what a command announces, why it failed, panics.
//!
//! They have the format of the log (`HOLDFAST_LOG_FORMAT`: text, or one JSON object per line), and
//! no filter hides them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::panic::PanicHookInfo;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tracing::Level;

use super::log_writer::{self, Output};

const FORMAT: &str = "HOLDFAST_LOG_FORMAT";
const TARGET: &str = "holdfast";
/// Upper bound of the time that a reader who does not read delays the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The same after a panic, which does not end the process in most cases.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Starts the thread that writes all lines. Reports panics as lines.
pub fn start_writer() -> std::io::Result<()> {
    std::panic::set_hook(Box::new(log_panic));
    log_writer::start()
}

/// Reads the format of the log.
pub fn format_is_json() -> anyhow::Result<bool> {
    let format = env::var_os(FORMAT).unwrap_or_default();
    match format.to_string_lossy().trim() {
        "" | "text" => Ok(false),
        "json" => Ok(true),
        other => bail!("{FORMAT} is “{other}”; it can be text or json"),
    }
}

/// Returns whether the lines of this process are JSON. An invalid setting is reported as text.
pub fn is_json() -> bool {
    static IS_JSON: LazyLock<bool> = LazyLock::new(|| format_is_json().unwrap_or(false));
    *IS_JSON
}

/// Formats a line as the log formats its own.
pub(super) fn format_line(level: Level, message: &str) -> String {
    // Fails for a year of more than four digits.
    let timestamp = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
    if is_json() {
        let (level, target) = (level.as_str(), TARGET);
        let line =
            json!({ "timestamp": timestamp, "level": level, "target": target, "message": message });
        return format!("{line}\n");
    }
    format!("{timestamp} {level:>5} {TARGET}: {message}\n")
}

/// Prints a line to stdout: what the command has done, or that it is ready.
pub fn announce(message: &str) {
    print(Output::Stdout, Level::INFO, message, "");
}

/// Prints the error that ends the command.
pub fn report_failure(message: &str) {
    print(Output::Stderr, Level::ERROR, message, "holdfast: ");
}

/// Prints to stderr what a command is doing.
pub fn print_progress(message: &str) {
    print(Output::Stderr, Level::INFO, message, "");
}

fn print(output: Output, level: Level, message: &str, prefix_of_text: &str) {
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
        assert!(description.contains("src/output/notices.rs:"), "{description}");
    }
}
