//! A Redis Cluster: sends each command to the node that owns its key.
//!
//! Guarantees: a command is sent again only if the node responded that it did not execute it
//! (`MOVED`, `ASK`, `TRYAGAIN`). The Cluster client of redis-rs also resends a command whose
//! connection broke; a `SET NX` that executes twice reports to its own holder that the lock is
//! busy.
//!
//! Does not guarantee that an acknowledged write outlives its primary: replication is asynchronous.
//! While a slot migrates, its locks are unavailable: neither node executes a script of which one
//! key is absent (`TRYAGAIN`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ConnectionInfo, ErrorKind, Pipeline, RedisError};
use redis::{ServerErrorKind, Value};

use super::address::{host_and_port, replace_host};
use super::background::Background;
use super::error::not_sent;
use super::messages::MessageSender;
use super::node::ClusterNode;
use super::request::{RedisRequest, in_time};
use super::search::{SearchLock, first_ok};
use super::server::ServerConnection;
use super::sharded::ShardedChannels;
use super::slots::{self, Node, SlotMap};
use crate::time::sleep;

/// Upper bound of attempts to send a command, redirected ones included.
const MAX_ATTEMPTS: usize = 6;
/// Pause before a command is sent again after `TRYAGAIN`: its keys are being migrated.
const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(20);
/// Pause after a slot map was fetched in the background: while a node is silent, each failing call
/// asks for one.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Cluster {
    /// Nodes of the address; the first one also has the connection settings of all others.
    seeds: Vec<ConnectionInfo>,
    nodes: Mutex<HashMap<Node, ClusterNode>>,
    sharded: ShardedChannels,
    map: Mutex<Arc<SlotMap>>,
    search_lock: SearchLock,
    refreshing: AtomicBool,
    background: Background,
}

/// The Cluster, and the node of the last command.
#[derive(Clone)]
pub(super) struct ClusterConnection {
    cluster: Arc<Cluster>,
    last: Option<Node>,
    fails_fast: bool,
}

/// The response of a node that did not execute a command.
enum Redirect {
    Moved(Node),
    Ask(Node),
    TryAgain,
}

impl ClusterConnection {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, background: Background) -> Self {
        let cluster = Arc::new(Cluster {
            seeds,
            nodes: Mutex::default(),
            sharded: ShardedChannels::default(),
            map: Mutex::default(),
            search_lock: SearchLock::default(),
            refreshing: AtomicBool::new(false),
            background,
        });
        Self { cluster, last: None, fails_fast: true }
    }

    pub(super) fn for_release(&self) -> Self {
        Self { fails_fast: false, ..self.clone() }
    }

    /// Sends to the node that owns the keys; without keys, to the node of the last command, so that
    /// a script is loaded where it was missing.
    pub(super) async fn send(
        &mut self,
        request: RedisRequest<'_>,
    ) -> Result<Vec<Value>, RedisError> {
        let cluster = self.cluster.clone();
        let response = in_time(self.route(request)).await;

        let is_outdated = match &response {
            Ok(values) => {
                values.iter().any(|value| kind(value) == Some(ServerErrorKind::ClusterDown))
            }
            Err(_) => true,
        };
        if is_outdated {
            cluster.refresh_in_background();
        }
        response
    }

    async fn route(&mut self, request: RedisRequest<'_>) -> Result<Vec<Value>, RedisError> {
        let mut node = match (slots::of(request)?, self.last.take()) {
            (Some(slot), _) => self.cluster.owner(slot).await?,
            (None, Some(last)) => last,
            (None, None) => self.cluster.primaries().await?.swap_remove(0),
        };

        let mut asking = false;
        for _ in 0..MAX_ATTEMPTS {
            self.last = Some(node.clone());
            let values = self.send_to(&node, request, asking).await?;

            match redirect(&values, &node) {
                None => return Ok(values),
                Some(Redirect::Moved(to)) => {
                    self.cluster.refresh_in_background();
                    node = to;
                    asking = false;
                }
                // For this command only: the slot is still the other node's.
                Some(Redirect::Ask(to)) => {
                    node = to;
                    asking = true;
                }
                Some(Redirect::TryAgain) => sleep(TRY_AGAIN_PAUSE).await,
            }
        }
        Err((ErrorKind::Io, "the nodes of the Cluster point to each other").into())
    }

    async fn send_to(
        &self,
        node: &Node,
        request: RedisRequest<'_>,
        asking: bool,
    ) -> Result<Vec<Value>, RedisError> {
        let node = self.cluster.node(node)?;
        if self.fails_fast
            && let Some(outage) = node.outage()
        {
            return Err(not_sent(&outage));
        }

        let call = node.begin_call();
        let values = if asking {
            send_asking(request, node.connection()).await
        } else {
            node.connection().send(request).await
        };
        call.end(&values);
        values
    }

    pub(super) async fn each_primary(&self) -> Result<Vec<ServerConnection>, RedisError> {
        let nodes = self.cluster.primaries().await?;
        nodes.iter().map(|node| Ok(self.cluster.node(node)?.connection().clone())).collect()
    }

    /// Returns, for each primary, the first of `keys` that it owns.
    pub(super) async fn key_of_each_primary(
        &self,
        keys: impl Iterator<Item = String>,
    ) -> Result<Vec<String>, RedisError> {
        let mut missing = self.cluster.primaries().await?;
        let mut found = Vec::new();

        for key in keys {
            let owner = self.cluster.owner(slots::of_key(key.as_bytes())).await?;
            if let Some(at) = missing.iter().position(|node| *node == owner) {
                missing.swap_remove(at);
                found.push(key);
            }
            if missing.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Subscribes to a sharded channel.
    pub(super) async fn subscribe(
        &self,
        channel: &str,
        messages: MessageSender,
    ) -> Result<(), RedisError> {
        let cluster = &self.cluster;
        let node = cluster.owner(slots::of_key(channel.as_bytes())).await?;
        let address = || cluster.address(&node);
        let subscribed = cluster.sharded.subscribe(&node, address, channel, messages).await;
        if subscribed.is_err() {
            // The slot may have moved.
            cluster.refresh_in_background();
        }
        subscribed
    }

    pub(super) async fn node_addresses(&self) -> Vec<ConnectionInfo> {
        let nodes = self.cluster.primaries().await.unwrap_or_default();
        let known = nodes.iter().map(|node| self.cluster.address(node));
        known.chain(self.cluster.seeds.iter().cloned()).collect()
    }
}

impl Cluster {
    fn address(&self, (host, port): &Node) -> ConnectionInfo {
        let seed = &self.seeds[0];
        seed.clone().set_addr(replace_host(seed.addr(), host.clone(), *port))
    }

    fn node(&self, at: &Node) -> Result<ClusterNode, RedisError> {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(at) {
            return Ok(node.clone());
        }
        let node = ClusterNode::new(self.address(at), self.background.clone())?;
        nodes.insert(at.clone(), node.clone());
        Ok(node)
    }

    fn map(&self) -> Arc<SlotMap> {
        self.map.lock().clone()
    }

    async fn owner(&self, slot: u16) -> Result<Node, RedisError> {
        if let Some(node) = self.map().owner(slot) {
            return Ok(node.clone());
        }

        let map = self.refresh(|map| map.owner(slot).is_some()).await?;
        let owner = map.owner(slot).cloned();
        owner.ok_or_else(|| (ErrorKind::Io, "no node of the Cluster has the key's slot").into())
    }

    async fn primaries(&self) -> Result<Vec<Node>, RedisError> {
        let known = self.map().primaries();
        if known.is_empty() { Ok(self.refresh(|_| true).await?.primaries()) } else { Ok(known) }
    }

    /// Fetches the slot map, unless a concurrent call has just fetched one that satisfies
    /// `is_enough`.
    async fn refresh(
        &self,
        is_enough: impl Fn(&SlotMap) -> bool,
    ) -> Result<Arc<SlotMap>, RedisError> {
        let before = self.map();
        let is_newer = |map: &Arc<SlotMap>| !Arc::ptr_eq(&before, map) && is_enough(map);
        self.search_lock.search(|| Some(self.map()).filter(is_newer), self.fetch_from_any()).await
    }

    /// Asks every known node; uses the first map with slots. If it is outdated, `MOVED` corrects
    /// it.
    async fn fetch_from_any(&self) -> Result<Arc<SlotMap>, RedisError> {
        let mut nodes = self.map().primaries();
        nodes.extend(self.seeds.iter().filter_map(|seed| host_and_port(seed.addr())));
        nodes.sort();
        nodes.dedup();

        let no_nodes = RedisError::from((ErrorKind::Io, "the Cluster has no nodes"));
        let map = Arc::new(first_ok(nodes.iter().map(|node| self.ask(node)), no_nodes).await?);

        *self.map.lock() = map.clone();
        // Of the others, the connections and the outages are forgotten.
        let primaries = map.primaries();
        self.nodes.lock().retain(|node, _| primaries.contains(node) || nodes.contains(node));
        Ok(map)
    }

    async fn ask(&self, node: &Node) -> Result<SlotMap, RedisError> {
        let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let connection = self.node(node)?.connection().clone();
        let mut values = in_time(connection.send(RedisRequest::Command(&command))).await?;
        let response = values.pop().unwrap_or(Value::Nil).extract_error()?;
        let map = SlotMap::read(response, node)?;
        if map.primaries().is_empty() {
            return Err((ErrorKind::Io, "the node knows of no slots").into());
        }
        Ok(map)
    }

    fn refresh_in_background(self: &Arc<Self>) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cluster = self.clone();
        tokio::spawn(async move {
            if let Err(error) = cluster.refresh(|_| true).await {
                tracing::debug!(%error, "no node of the Cluster returned a slot map");
            }
            sleep(REFRESH_PAUSE).await;
            cluster.refreshing.store(false, Ordering::Release);
        });
    }
}

/// Sends `ASKING` before each command, because it applies to the next command only.
async fn send_asking(
    request: RedisRequest<'_>,
    connection: &ServerConnection,
) -> Result<Vec<Value>, RedisError> {
    let commands: Vec<&redis::Cmd> = match request {
        RedisRequest::Command(command) => vec![command],
        RedisRequest::Pipe(commands, _, _) => commands.cmd_iter().collect(),
    };
    let mut pipe = Pipeline::new();
    for command in commands {
        pipe.add_command(redis::cmd("ASKING")).add_command(command.clone());
    }

    let count = pipe.cmd_iter().count();
    let values = connection.send(RedisRequest::Pipe(&pipe, 0, count)).await?;
    Ok(values.into_iter().skip(1).step_by(2).collect())
}

fn kind(value: &Value) -> Option<ServerErrorKind> {
    match value {
        Value::ServerError(error) => error.kind(),
        _ => None,
    }
}

/// Returns the target of the next attempt if node `at` executed none of the commands.
fn redirect(values: &[Value], at: &Node) -> Option<Redirect> {
    use ServerErrorKind::{Ask, Moved, TryAgain};

    let first = kind(values.first()?)?;
    if !values.iter().all(|value| matches!(kind(value), Some(Ask | Moved | TryAgain))) {
        return None;
    }
    if first == TryAgain {
        return Some(Redirect::TryAgain);
    }

    let Value::ServerError(error) = values.first()? else { return None };
    let error = RedisError::from(error.clone());
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    // An empty host stands for the node that responded.
    let host = if host.is_empty() { at.0.as_str() } else { host };
    let node = (host.to_owned(), port.parse().ok()?);
    Some(if first == Moved { Redirect::Moved(node) } else { Redirect::Ask(node) })
}
