//! Two replicas on 127.0.0.1 in front of servers that are not this machine's: those of the user of
//! `holdfast bench`. If this process is killed, they end (on Linux) and their folder remains.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;
use futures_util::future::{join_all, try_join_all};
use rustix::process::Signal;

use super::ports::free_ports;
use super::process::{ServerProcess, own_program, tied_command};
use super::replicas::{GRACE_PERIOD, START_TIMEOUT, check_ready};
use super::temp_shop::{ALL_CONNECTIONS, remove_settings};
use super::{LabMode, sockets};

#[derive(Debug)]
pub struct TempReplicas {
    addresses: Vec<SocketAddr>,
    children: Vec<ServerProcess>,
    /// Of their logs.
    folder: PathBuf,
}

impl TempReplicas {
    /// Starts them with these settings of `serve`, by the names of their variables: an argument
    /// could be read by every user of this machine. Must be called from the main thread, with which
    /// they end.
    pub fn start(settings: &[(&str, String)]) -> Result<Self> {
        let program = own_program()?;
        let port = free_ports(2)?;
        let mut replicas =
            Self { addresses: Vec::new(), children: Vec::new(), folder: sockets::create(None)? };

        for port in [port, port + 1] {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut command = tied_command(&program, "TERM");
            remove_settings(&mut command);
            command
                .arg("serve")
                .env("HOLDFAST_LISTEN", address.to_string())
                .env("HOLDFAST_LAB", LabMode::On.name())
                // There are no other customers, and a benchmark measures lab items.
                .env("HOLDFAST_LAB_CONNECTIONS", ALL_CONNECTIONS)
                // Scheduled jobs would distort the cost of an order.
                .env("HOLDFAST_JOBS", "off")
                // There is no balancer.
                .env("HOLDFAST_DRAIN_S", "0")
                .envs(settings.iter().map(|(name, value)| (name, value)));

            let log = replicas.folder.join(format!("replica-{port}.log"));
            replicas.children.push(ServerProcess::start(&mut command, &log)?);
            replicas.addresses.push(address);
        }
        Ok(replicas)
    }

    /// Waits until they accept orders, and returns their addresses.
    pub async fn ready(&mut self) -> Result<Vec<SocketAddr>> {
        let both = self.children.iter_mut().zip(&self.addresses);
        let waits = both.map(async |(child, address)| {
            let probe = async || check_ready(*address).await.map(drop);
            child.wait_ready(&format!("replica {}", address.port()), START_TIMEOUT, probe).await
        });
        try_join_all(waits).await?;
        Ok(self.addresses.clone())
    }

    /// Ends them: their sessions at Postgres and Redis are closed afterwards.
    pub async fn stop(mut self) {
        join_all(self.children.iter_mut().map(|child| child.end(Signal::TERM, GRACE_PERIOD))).await;
    }
}

impl Drop for TempReplicas {
    fn drop(&mut self) {
        // A child that still runs is killed with its value.
        sockets::remove(&self.folder);
    }
}
