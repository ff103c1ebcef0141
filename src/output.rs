//! Output of the commands: results on stdout, a progress line on stderr.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

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

/// A progress line on stderr, if stderr is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    is_terminal: bool,
    min_interval: Duration,
    drawn_at: Option<Instant>,
}

impl ProgressLine {
    /// Creates a line that is redrawn at most once per interval.
    pub fn new(min_interval: Duration) -> Self {
        Self { is_terminal: io::stderr().is_terminal(), min_interval, drawn_at: None }
    }

    pub fn draw(&mut self, text: impl FnOnce() -> String) {
        if self.is_terminal
            && self.drawn_at.is_none_or(|drawn_at| drawn_at.elapsed() >= self.min_interval)
        {
            self.drawn_at = Some(Instant::now());
            eprint!("\r\x1b[K{}", text());
            let _ = io::stderr().flush();
        }
    }

    pub fn clear(&mut self) {
        if self.drawn_at.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
