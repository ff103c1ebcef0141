//! `holdfast serve`: one replica.

use anyhow::Context as _;

use crate::app::ReplicaServer;
use crate::settings::ServeArgs;
use holdfast_base::output;
use holdfast_base::signals;

pub(crate) async fn serve(options: &ServeArgs) -> anyhow::Result<()> {
    // First: process 1 of a container ignores signals until it listens.
    let mut signals = signals::listen().context("signals can't be listened to")?;

    let replica = tokio::select! {
        built = ReplicaServer::build(options) => built?,
        Some(_) = signals.recv() => return Ok(()),
    };
    output::announce(&format!(
        "Holdfast replica on http://{} (lock: {})",
        replica.address()?,
        options.lock.strategy
    ));

    replica.run_until_stopped(signals).await
}
