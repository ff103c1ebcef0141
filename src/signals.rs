//! The signals that stop a command.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// The signals that stop every command.
pub const STOP: [SignalKind; 2] = [SignalKind::interrupt(), SignalKind::terminate()];

/// Listens to signals of these kinds from now on. Returns their names as they arrive.
pub fn listen(kinds: &[SignalKind]) -> io::Result<UnboundedReceiver<&'static str>> {
    let (sender, signals) = mpsc::unbounded_channel();
    for kind in kinds {
        let mut arrivals = signal(*kind)?;
        let name = match kind {
            kind if *kind == SignalKind::interrupt() => "interrupted",
            kind if *kind == SignalKind::terminate() => "terminated",
            _ => "hung up",
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            while arrivals.recv().await.is_some() && sender.send(name).is_ok() {}
        });
    }
    Ok(signals)
}
