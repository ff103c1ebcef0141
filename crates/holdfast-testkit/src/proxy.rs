//! A proxy on loopback to a unix socket, which simulates an outage of Postgres or Redis.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use crate::{options, services};

pub struct Proxy {
    pub port: u16,
    switches: Arc<Switches>,
    connections: Arc<Mutex<Connections>>,
    silence: watch::Sender<Silence>,
}

/// Which connections forward nothing.
#[derive(Clone, Copy)]
enum Silence {
    Off,
    All,
    /// Those that were open when the silence began.
    OpenedBefore(Instant),
}

impl Silence {
    fn applies_to(self, opened: Instant) -> bool {
        match self {
            Silence::Off => false,
            Silence::All => true,
            Silence::OpenedBefore(began) => opened < began,
        }
    }
}

/// The open connections, which end together.
struct Connections {
    /// Whether new ones are closed at once.
    closed: bool,
    cut: watch::Sender<()>,
    /// Each connection has a clone of the sender, so that the receiver ends with the last of them.
    open: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl Connections {
    fn new() -> Self {
        let (cut, _) = watch::channel(());
        let (open, ended) = mpsc::channel(1);
        Self { closed: false, cut, open, ended }
    }
}

#[derive(Default)]
struct Switches {
    /// The response to the next statement is to be dropped.
    armed: AtomicBool,
    /// The statement was sent; the next response is the one to drop.
    swallow: AtomicBool,
    /// The server does not learn that a client is cut off, and its statement runs on.
    orphans: AtomicBool,
    /// The next statement is to be delayed.
    hold: AtomicBool,
    /// The delayed statement is to be delivered now.
    deliver: Notify,
    delivered: Notify,
}

impl Proxy {
    pub async fn to_postgres() -> Self {
        let socket = format!(".s.PGSQL.{}", options().get_port());
        Self::to(options().get_socket().unwrap().join(socket)).await
    }

    pub async fn to_redis() -> Self {
        let url = &services().running.redis_url;
        Self::to(PathBuf::from(url.strip_prefix("redis+unix://").unwrap())).await
    }

    async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let switches = Arc::new(Switches::default());
        let connections = Arc::new(Mutex::new(Connections::new()));
        let (silence, silences) = watch::channel(Silence::Off);
        let (shared, admitted) = (switches.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connections = admitted.lock().unwrap();
                // A dead server's port looks like this to a client: accepted and closed at once.
                if !connections.closed {
                    let connection = Connection {
                        cuts: connections.cut.subscribe(),
                        _open: connections.open.clone(),
                    };
                    let silences = silences.clone();
                    let (socket, shared) = (socket.clone(), shared.clone());
                    tokio::spawn(forward(client, socket, shared, connection, silences));
                }
            }
        });
        Self { port, switches, connections, silence }
    }

    /// Ends all connections and lets no new one in. Nothing is forwarded any more when it returns.
    pub async fn cut(&self) {
        self.end_connections(true).await;
    }

    /// Ends the clients' connections, and lets new ones in. The server does not learn of it.
    pub async fn cut_clients(&self) {
        self.switches.orphans.store(true, Ordering::SeqCst);
        self.end_connections(false).await;
    }

    async fn end_connections(&self, closed: bool) {
        let mut ended = {
            let mut connections = self.connections.lock().unwrap();
            let old = std::mem::replace(&mut *connections, Connections::new());
            connections.closed = closed;
            let _ = old.cut.send(());
            old.ended
        };
        ended.recv().await;
    }

    pub fn restore(&self) {
        self.connections.lock().unwrap().closed = false;
    }

    /// Forwards nothing until [`Self::thaw`], like a network that drops packets: closes no
    /// connection, and accepts and holds new ones.
    pub fn freeze(&self) {
        self.silence.send_replace(Silence::All);
    }

    /// The same for the open connections only, like a firewall that forgets them: new ones work.
    pub fn freeze_open_connections(&self) {
        self.silence.send_replace(Silence::OpenedBefore(Instant::now()));
    }

    /// Ends the silence, and forwards what was held.
    pub fn thaw(&self) {
        self.silence.send_replace(Silence::Off);
    }

    /// Drops the response to the next executed statement and closes its connection instead. The
    /// statement has been executed by then. (Earlier responses may still be in flight.)
    pub fn drop_next_response(&self) {
        self.switches.armed.store(true, Ordering::SeqCst);
    }

    /// Delays the next executed statement, or `begin`, until [`Self::deliver`].
    pub fn delay_next_statement(&self) {
        self.switches.hold.store(true, Ordering::SeqCst);
    }

    /// Delivers the delayed statement, and waits for the response of the server. The client may
    /// have disconnected.
    pub async fn deliver(&self) {
        self.switches.deliver.notify_one();
        let delivered = self.switches.delivered.notified();
        timeout(Duration::from_secs(10), delivered).await.expect("the server responds to it");
    }
}

/// Returns whether a statement with parameters is executed, and not only prepared. Without
/// parameters it may be the check whether Postgres is writable, which comes at any time.
fn is_executed(message: &[u8]) -> bool {
    const LENGTH_WITHOUT_PARAMETERS: u32 = 30;
    let [b'B', length @ ..] = message else { return false };
    length
        .first_chunk()
        .is_some_and(|length| u32::from_be_bytes(*length) > LENGTH_WITHOUT_PARAMETERS)
}

/// One connection of the proxy, until it is cut.
struct Connection {
    cuts: watch::Receiver<()>,
    _open: mpsc::Sender<()>,
}

async fn forward(
    client: TcpStream,
    socket: PathBuf,
    switches: Arc<Switches>,
    mut connection: Connection,
    silences: watch::Receiver<Silence>,
) {
    let opened = Instant::now();
    // Fails if the proxy is dropped, and with it the test.
    let unless_silent = async || {
        let mut silences = silences.clone();
        let _ = silences.wait_for(|silence| !silence.applies_to(opened)).await;
    };
    tokio::select! {
        () = unless_silent() => {}
        _ = connection.cuts.changed() => return,
    }
    let Ok(server) = UnixStream::connect(socket).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (delivering, responded) = (AtomicBool::new(false), Notify::new());
    let responses = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if delivering.swap(false, Ordering::SeqCst) {
                switches.delivered.notify_one();
                responded.notify_one();
            }
            unless_silent().await;
            if switches.swallow.swap(false, Ordering::SeqCst)
                || to_client.write_all(&buffer[..length]).await.is_err()
            {
                return;
            }
        }
    };
    let requests = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if is_executed(&buffer[..length]) && switches.armed.swap(false, Ordering::SeqCst) {
                switches.swallow.store(true, Ordering::SeqCst);
            }
            let is_statement = is_executed(&buffer[..length]) || buffer[5..].starts_with(b"begin");
            let held = is_statement && switches.hold.swap(false, Ordering::SeqCst);
            if held {
                switches.deliver.notified().await;
                delivering.store(true, Ordering::SeqCst);
            }
            unless_silent().await;
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
            if held {
                responded.notified().await;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = responses => {}
        _ = connection.cuts.changed() => {}
    }
    if switches.orphans.load(Ordering::SeqCst) {
        drop((from_client, to_client));
        drop(connection);
        let _ = from_server.read_to_end(&mut Vec::new()).await;
    }
}
