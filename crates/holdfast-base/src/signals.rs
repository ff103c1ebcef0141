//! The signals that stop a command.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// Listens from now on to the signals that stop a command: INT, TERM, and HUP, with which a closed
/// terminal ends its programs. Returns their names as they arrive.
///
/// HUP only begins a stop: a closed terminal sends it twice, from its shell and from the kernel,
/// and does not ask to stop at once. Under `nohup` it stays ignored.
pub fn listen() -> io::Result<UnboundedReceiver<&'static str>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = match ignores_hang_up() {
        true => None,
        false => Some(signal(SignalKind::hangup())?),
    };

    let (sender, signals) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut is_first = true;
        loop {
            let name = tokio::select! {
                _ = interrupt.recv() => "interrupted",
                _ = terminate.recv() => "terminated",
                Some(()) = next(&mut hang_up), if is_first => "hung up",
            };

            is_first = false;
            if sender.send(name).is_err() {
                return;
            }
        }
    });
    Ok(signals)
}

async fn next(signal: &mut Option<Signal>) -> Option<()> {
    signal.as_mut()?.recv().await
}

/// Returns whether HUP is ignored, which is known on Linux only.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // A bit per signal; HUP is 1, the first.
    mask.is_some_and(|mask| mask & 1 == 1)
}
