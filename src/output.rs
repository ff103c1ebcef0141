//! Output of the commands on stdout.

use std::io::{self, Write as _};

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
