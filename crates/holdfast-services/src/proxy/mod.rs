//! A TCP proxy on 127.0.0.1 to a server, whose link can be slow, silent, cut or moved: for the
//! faults of the judge and of tests. On a link to Postgres, or to Redis, what passes can be held up
//! and watched.

mod commands;
mod exchanges;
mod passing;

use std::future::pending;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use self::commands::CommandConnection;
use self::exchanges::WatchedConnection;
pub use self::passing::{Exchange, Passing, ServerKind, Statement, Watcher};

/// A statement is a chunk, also that of a full batch.
const CHUNK_BYTES: usize = 64 << 10;
/// Pause after a connection that could not be accepted.
const RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    link: watch::Sender<Link>,
    open: Arc<Mutex<EpochConnections>>,
    accepted: Arc<AtomicUsize>,
    _accepting: AbortOnDropHandle<()>,
}

/// Returns what is done with a connection of this number.
type NewPassing = Box<dyn Fn(u64) -> Box<dyn Passing> + Send + Sync>;

/// Where a server listens.
#[derive(Debug, Clone)]
pub enum Upstream {
    Socket(PathBuf),
    /// A host and its port.
    Address(String),
}

type ServerHalves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

impl Upstream {
    async fn connect(&self) -> std::io::Result<ServerHalves> {
        Ok(match self {
            Self::Socket(path) => {
                let (from, to) = UnixStream::connect(path).await?.into_split();
                (Box::new(from), Box::new(to))
            }
            Self::Address(address) => {
                let server = TcpStream::connect(address).await?;
                server.set_nodelay(true)?;
                let (from, to) = server.into_split();
                (Box::new(from), Box::new(to))
            }
        })
    }
}

#[derive(Debug, Clone)]
struct Link {
    target: Upstream,
    delay: Duration,
    traffic: Traffic,
    /// Connections of an earlier epoch are closed.
    epoch: u64,
    /// The server does not learn that a client is cut off, and its statement runs on.
    keeps_server: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Also what was withheld.
    Forwarded,
    /// Forwarded later, as by a network that drops packets. No connection is closed.
    Withheld,
    /// The bytes of the server are withheld; those of the clients arrive.
    AnswersWithheld,
    /// Withheld on the connections that are older, as by a firewall that forgets them.
    WithheldOnOlder(Instant),
    /// All connections are closed, new ones at once, as at the port of a dead server.
    Refused,
}

impl Traffic {
    fn is_forwarded(self, sender: Sender, opened: Instant) -> bool {
        match self {
            Self::Forwarded => true,
            Self::AnswersWithheld => sender == Sender::Client,
            Self::WithheldOnOlder(since) => opened >= since,
            Self::Withheld | Self::Refused => false,
        }
    }
}

/// The sender in one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Server,
}

/// The connections of an epoch, which end together.
#[derive(Debug)]
struct EpochConnections {
    /// Each connection has a clone, so that the receiver ends with the last of them.
    token: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl EpochConnections {
    fn new() -> Self {
        let (token, ended) = mpsc::channel(1);
        Self { token, ended }
    }
}

impl Proxy {
    pub async fn start(target: Upstream) -> std::io::Result<Self> {
        Self::start_with(target, None).await
    }

    /// Starts a proxy to Postgres whose exchanges `watcher` gets.
    pub async fn watched(target: Upstream, watcher: Arc<dyn Watcher>) -> std::io::Result<Self> {
        let new = move |number: u64| -> Box<dyn Passing> {
            Box::new(WatchedConnection::new(Arc::clone(&watcher), number))
        };
        Self::start_with(target, Some(Box::new(new))).await
    }

    /// Starts a proxy to Redis whose commands `watcher` gets, those that are sent at once as an
    /// exchange.
    pub async fn watched_redis(
        target: Upstream,
        watcher: Arc<dyn Watcher>,
    ) -> std::io::Result<Self> {
        let new = move |number: u64| -> Box<dyn Passing> {
            Box::new(CommandConnection::new(Arc::clone(&watcher), number))
        };
        Self::start_with(target, Some(Box::new(new))).await
    }

    /// Starts a proxy. If it does something with the connections, the server has no TLS to its
    /// clients.
    pub async fn start_with(target: Upstream, new: Option<NewPassing>) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (link, links) = watch::channel(Link {
            target,
            delay: Duration::ZERO,
            traffic: Traffic::Forwarded,
            epoch: 0,
            keeps_server: false,
        });
        let open = Arc::new(Mutex::new(EpochConnections::new()));
        let accepted = Arc::new(AtomicUsize::new(0));

        let (count, admitted) = (Arc::clone(&accepted), Arc::clone(&open));
        let accepting = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    // No file descriptor is free: connections that end free some.
                    sleep(RETRY_DELAY).await;
                    continue;
                };

                // Under the lock, so that an epoch ends with all its connections.
                let admitted = admitted.lock();
                let (epoch, traffic) = {
                    let link = links.borrow();
                    (link.epoch, link.traffic)
                };
                if traffic != Traffic::Refused {
                    let number = count.fetch_add(1, Ordering::Relaxed) as u64;
                    let _ = client.set_nodelay(true);
                    let token = admitted.token.clone();
                    let link = OpenLink { links: links.clone(), epoch, opened: Instant::now() };
                    let passing = new.as_ref().map(|new| new(number));
                    tokio::spawn(carry(client, link, token, passing));
                }
            }
        }));
        Ok(Self { port, link, open, accepted, _accepting: accepting })
    }

    /// Delays what is received from now on, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.link.send_modify(|link| link.delay = delay);
    }

    pub fn set(&self, traffic: Traffic) {
        if traffic == Traffic::Refused {
            self.end_epoch(|link| link.traffic = traffic);
        } else {
            self.link.send_modify(|link| link.traffic = traffic);
        }
    }

    /// Closes all connections and forwards new ones to another socket.
    pub fn repoint(&self, target: &Path) {
        self.end_epoch(|link| {
            link.target = Upstream::Socket(target.to_owned());
            link.traffic = Traffic::Forwarded;
        });
    }

    /// Closes all connections and lets no new one in. Nothing is forwarded any more when it
    /// returns.
    pub async fn cut(&self) {
        self.end_epoch(|link| link.traffic = Traffic::Refused).recv().await;
    }

    /// Closes the clients' connections, and lets new ones in. The server does not learn of it.
    pub async fn cut_clients(&self) {
        self.end_epoch(|link| link.keeps_server = true).recv().await;
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.open.lock().token.strong_count() - 1
    }

    /// Returns the number of connections that were let in so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closes the open connections on both sides, and lets new ones in.
    pub async fn close_connections(&self) {
        self.end_epoch(|_| {}).recv().await;
    }

    /// Closes the open connections. Returns what ends with the last of them.
    fn end_epoch(&self, change: impl FnOnce(&mut Link)) -> mpsc::Receiver<()> {
        let mut open = self.open.lock();
        let old = std::mem::replace(&mut *open, EpochConnections::new());
        self.link.send_modify(|link| {
            change(link);
            link.epoch += 1;
        });
        old.ended
    }
}

/// Forwards one connection until it is closed on either side, or by the proxy. Parameters are
/// dropped from the last one: who waits for the token knows that `passing` has seen the end.
async fn carry(
    mut client: TcpStream,
    link: OpenLink,
    token: mpsc::Sender<()>,
    passing: Option<Box<dyn Passing>>,
) {
    let passing = passing.as_deref();
    let ended = link.wait_closed();
    tokio::pin!(ended);

    let connecting = async {
        let first = match passing {
            Some(passing) if passing.server() == ServerKind::Postgres => {
                exchanges::admit(&mut client).await.ok()?
            }
            _ => Vec::new(),
        };
        let target = link.wait_forwarded(Sender::Client).await?;
        let (from_server, mut to_server) = target.connect().await.ok()?;
        to_server.write_all(&first).await.ok()?;
        Some((from_server, to_server))
    };
    let server = tokio::select! {
        server = connecting => server,
        () = &mut ended => None,
    };
    let Some((mut from_server, mut to_server)) = server else { return };

    let (from_client, to_client) = client.into_split();
    tokio::select! {
        () = link.forward(Sender::Client, from_client, &mut to_server, passing) => {}
        () = link.forward(Sender::Server, &mut from_server, to_client, passing) => {}
        () = &mut ended => {}
    }

    if link.links.borrow().keeps_server {
        drop(token);
        let _ = from_server.read_to_end(&mut Vec::new()).await;
    }
}

/// The link as one connection has it.
struct OpenLink {
    links: watch::Receiver<Link>,
    /// That in which it was accepted.
    epoch: u64,
    opened: Instant,
}

impl OpenLink {
    /// Waits until the proxy closes the connection, or is dropped.
    async fn wait_closed(&self) {
        let mut links = self.links.clone();
        let _ = links.wait_for(|link| link.epoch != self.epoch).await;
    }

    /// Waits until the link forwards what one side sends, and returns its target; `None` if the
    /// proxy was dropped.
    async fn wait_forwarded(&self, sender: Sender) -> Option<Upstream> {
        let mut links = self.links.clone();
        let is_forwarded = |link: &Link| link.traffic.is_forwarded(sender, self.opened);
        let link = links.wait_for(is_forwarded).await.ok()?;
        Some(link.target.clone())
    }

    /// Copies one direction; a delay postpones each chunk and reduces no throughput.
    async fn forward(
        &self,
        sender: Sender,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        passing: Option<&dyn Passing>,
    ) {
        let (queue, mut queued) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();

        let mut buffer = vec![0; CHUNK_BYTES];
        let reading = async {
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                let due = Instant::now() + self.links.borrow().delay;
                if queue.send((due, buffer[..length].to_vec())).is_err() {
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
                let goes_on = match (passing, sender) {
                    (None, _) => true,
                    (Some(passing), Sender::Server) => passing.response(&chunk).await,
                    (Some(passing), Sender::Client) => passing.request(&chunk).await,
                };
                if !goes_on
                    || self.wait_forwarded(sender).await.is_none()
                    || to.write_all(&chunk).await.is_err()
                {
                    break;
                }
                if let (Some(passing), Sender::Client) = (passing, sender) {
                    passing.requested().await;
                }
            }
        };

        // What was read is still written.
        let reading_to_end = async {
            reading.await;
            pending::<()>().await;
        };
        tokio::select! {
            () = writing => {}
            () = reading_to_end => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn connection_that_was_just_accepted_is_cut() {
        let nowhere = Upstream::Socket("/nowhere".into());
        let proxy = Proxy::start(nowhere).await.expect("a proxy");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).await.expect("it is open");

        // As the proxy accepts it.
        let link = OpenLink { links: proxy.link.subscribe(), epoch: 0, opened: Instant::now() };
        let token = proxy.open.lock().token.clone();
        let carrying = carry(client, link, token, None);
        // The cut begins before the connection's own task does.
        let cutting = join(proxy.cut(), carrying);
        timeout(Duration::from_secs(10), cutting).await.expect("the connection ends");
    }
}
