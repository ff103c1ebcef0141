//! A TCP proxy on 127.0.0.1 to a unix socket, whose link can be slow, silent, closed or moved.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

const CHUNK_BYTES: usize = 16 << 10;
/// Pause after a connection that could not be accepted.
const RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    link: watch::Sender<Link>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Clone)]
struct Link {
    target: PathBuf,
    delay: Duration,
    traffic: Traffic,
    /// Connections of an earlier epoch are closed.
    epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Also what was withheld.
    Forwarded,
    /// Forwarded later, as by a network that drops packets. No connection is closed.
    Withheld,
    /// All connections are closed, new ones at once.
    Refused,
}

impl Proxy {
    pub(super) async fn start(target: &Path) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let target = target.to_owned();
        let link = Link { target, delay: Duration::ZERO, traffic: Traffic::Forwarded, epoch: 0 };
        let (link, links) = watch::channel(link);

        let accepting = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    // No file descriptor is free: connections that end free some.
                    sleep(RETRY_DELAY).await;
                    continue;
                };
                if links.borrow().traffic != Traffic::Refused {
                    let _ = client.set_nodelay(true);
                    tokio::spawn(carry(client, links.clone()));
                }
            }
        });
        Ok(Self { port, link, accepting })
    }

    /// Delays what is received from now on, in each direction.
    pub(super) fn delay(&self, delay: Duration) {
        self.link.send_modify(|link| link.delay = delay);
    }

    pub(super) fn set(&self, traffic: Traffic) {
        self.link.send_modify(|link| {
            link.traffic = traffic;
            link.epoch += u64::from(traffic == Traffic::Refused);
        });
    }

    /// Closes all connections and forwards new ones to another socket.
    pub(super) fn repoint(&self, target: &Path) {
        self.link.send_modify(|link| {
            link.target = target.to_owned();
            link.traffic = Traffic::Forwarded;
            link.epoch += 1;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards one connection until it is closed on either side, or by the proxy.
async fn carry(client: TcpStream, links: watch::Receiver<Link>) {
    let epoch = links.borrow().epoch;
    let mut epochs = links.clone();

    let forwarding = async {
        let target = wait_forwarded(&mut links.clone()).await?;
        let server = UnixStream::connect(target).await.ok()?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = forward(from_client, to_server, links.clone()) => {}
            () = forward(from_server, to_client, links.clone()) => {}
        }
        Some(())
    };

    tokio::select! {
        _ = forwarding => {}
        // An error means that the proxy was dropped.
        _ = epochs.wait_for(|link| link.epoch != epoch) => {}
    }
}

/// Waits until the link forwards, and returns its target; `None` if the proxy was dropped.
async fn wait_forwarded(links: &mut watch::Receiver<Link>) -> Option<PathBuf> {
    let link = links.wait_for(|link| link.traffic == Traffic::Forwarded).await.ok()?;
    Some(link.target.clone())
}

/// Copies one direction; a delay postpones each chunk and reduces no throughput.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut links: watch::Receiver<Link>,
) {
    let (queue, mut queued) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let delays = links.clone();

    let reading = async {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let Ok(length @ 1..) = from.read(&mut chunk).await else { break };
            chunk.truncate(length);
            let due = Instant::now() + delays.borrow().delay;
            if queue.send((due, chunk)).is_err() {
                break;
            }
        }
        drop(queue);
    };

    let writing = async {
        while let Some((due, chunk)) = queued.recv().await {
            // The timer's ticks of a millisecond would slow down a link without a delay.
            if due > Instant::now() {
                sleep_until(due).await;
            }
            if wait_forwarded(&mut links).await.is_none() || to.write_all(&chunk).await.is_err() {
                break;
            }
        }
    };

    // Reading ends first; what it has read is still written.
    tokio::join!(reading, writing);
}
