//! Output of the commands: results on stdout or in files, a progress line on stderr, and lines in
//! the format of the log that say what a command does (`notices`).

mod line_format;
mod log_writer;
mod notices;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use line_format::{format_is_json, is_json};
pub use log_writer::{LineWriter, METRICS};
pub use notices::{announce, flush, print_progress, report_failure, start_writer};

/// Prints and flushes. A closed pipe (`| head`) is no error: the command continues to its end, with
/// its own exit code.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("can't write to stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Formats a number with commas between thousands: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of events per second: `2,226`, below 100 with a decimal.
pub fn rate(per_second: f64) -> String {
    if per_second < 100.0 {
        return format!("{per_second:.1}");
    }
    grouped(per_second.round() as u64)
}

/// Formats a time in milliseconds, with a decimal: `1,683.2 ms`.
pub fn ms(time: Duration) -> String {
    let tenths = u64::try_from((time.as_micros() + 50) / 100).unwrap_or(u64::MAX);
    format!("{}.{} ms", grouped(tenths / 10), tenths % 10)
}

/// A file for a result that takes minutes: it is opened before, so that a wrong path fails at once.
/// One that was created and never written is removed when this value is dropped.
#[derive(Debug)]
pub struct ResultFile {
    file: Option<(PathBuf, File)>,
    is_new: bool,
}

impl ResultFile {
    /// Opens or creates the file. An earlier result stays until [`Self::write`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let created = File::options().write(true).create_new(true).open(path);
        let is_new = created.is_ok();
        let opened = created
            .or_else(|_| File::options().write(true).create(true).truncate(false).open(path));

        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(Self { file: Some((path.to_owned(), file)), is_new })
    }

    pub fn open_or_stdout(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            Ok(Self { file: None, is_new: false })
        } else {
            Self::open(path)
        }
    }

    pub fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    pub fn write(mut self, text: &str) -> io::Result<()> {
        let Some((path, mut file)) = self.file.take() else { return print(text) };
        // A pipe has no length.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if is_file { file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|error| unwritable(&path, &error))
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if let Some((path, _)) = self.file.take().filter(|_| self.is_new) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't write {}: {error}", path.display()))
}

/// A progress line on stderr, if stderr is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    is_terminal: bool,
    min_interval: Duration,
    drawn_at: Option<Instant>,
}

impl ProgressLine {
    pub fn new(min_interval: Duration) -> Self {
        Self { is_terminal: io::stderr().is_terminal(), min_interval, drawn_at: None }
    }

    pub fn draw(&mut self, text: impl FnOnce() -> String) {
        if self.is_terminal
            && self.drawn_at.is_none_or(|drawn_at| drawn_at.elapsed() >= self.min_interval)
        {
            self.drawn_at = Some(Instant::now());
            // The cursor is back at the begin, where a line of `print_progress` overwrites it.
            eprint!("\r\x1b[K{}\r", text());
            let _ = io::stderr().flush();
        }
    }

    pub fn clear(&mut self) {
        if self.drawn_at.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

/// Formats an amount of money: `−1,234.50`.
pub fn format_cents(cents: i64) -> String {
    let sign = if cents < 0 { "−" } else { "" };
    let amount = cents.unsigned_abs();
    format!("{sign}{}.{:02}", grouped(amount / 100), amount % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let texts = [7, 100_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["7", "100,000", "1,234,567"]);
        assert_eq!(ms(Duration::from_micros(1_683_250)), "1,683.3 ms");
    }

    #[test]
    fn unwritten_result_leaves_no_new_file() {
        let name = format!("holdfast-result-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(ResultFile::open(&path).expect("it can be made"));
        assert!(!path.exists());

        ResultFile::open(&path).and_then(|file| file.write("first")).expect("it is written");
        drop(ResultFile::open(&path).expect("it is there"));
        assert_eq!(std::fs::read_to_string(&path).expect("the earlier result stays"), "first");
        std::fs::remove_file(path).expect("it is ours");
    }
}
