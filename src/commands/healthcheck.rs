//! `holdfast healthcheck`: whether the replica on this machine is ready.

use std::net::SocketAddr;

use clap::Args;

use holdfast_base::flags::address;
use holdfast_base::output;

#[derive(Debug, Clone, Args)]
pub struct HealthcheckArgs {
    /// Address on which the replica listens; an unspecified one (0.0.0.0) means loopback
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
}

pub(crate) async fn healthcheck(options: &HealthcheckArgs) -> anyhow::Result<()> {
    let body = holdfast_services::check_ready(options.listen).await;
    let body =
        body.map_err(|why| anyhow::anyhow!("the replica is not ready: {}", why.trim_end()))?;
    Ok(output::print(&format!("ready: {}\n", body.trim_end()))?)
}
