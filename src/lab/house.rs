//! The shop that runs are carried out in, from outside: its replicas' addresses, the hands by which
//! they can be stopped and killed, its Postgres and its Redis, and the lab's own users.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::run::MOST_BUYERS;
use crate::db::{self, Pool};
use crate::embedded::{Hands, RunningUp};
use crate::load;
use crate::shop::{UserId, users};

/// Beside the replicas' own.
const CONNECTIONS: u32 = 4;
/// A replica that was killed is up again within its supervisor's pause and its own start.
const BACK_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What everybody's name in the lab begins with.
const NAMES: &str = "lab-";

/// Where runs are carried out.
#[derive(Debug)]
pub(super) struct House {
    pub(super) replicas: Vec<SocketAddr>,
    pub(super) hands: Hands,
    pub(super) pool: Pool,
    pub(super) redis_url: String,
    pub(super) node_urls: Vec<String>,
    /// Session tokens of buyers with nothing on their accounts.
    pub(super) buyers: Vec<String>,
    /// The session token of the lab's own admin.
    pub(super) admin: String,
    /// A password that nobody has, hashed: for users that are made for one run.
    hash: String,
}

impl House {
    /// Signs the lab's users in, beside the front door: they have no password.
    pub(super) async fn open(running: &RunningUp, hands: Hands) -> anyhow::Result<Self> {
        let replicas: Result<Vec<SocketAddr>, _> =
            running.replicas.iter().map(|url| url.trim_start_matches("http://").parse()).collect();
        let pool = db::pool(&running.database_url, CONNECTIONS)?;
        let hash = users::hash_apart(Uuid::new_v4().to_string()).await?;
        let mut house = Self {
            replicas: replicas.context("a replica's address")?,
            hands,
            pool,
            redis_url: running.redis_url.clone(),
            node_urls: running.redlock_urls.clone(),
            buyers: Vec::new(),
            admin: String::new(),
            hash,
        };
        for number in 1..=MOST_BUYERS {
            let (_, token) = house.user(&format!("{NAMES}{number:02}"), false).await?;
            house.buyers.push(token);
        }
        house.admin = house.user(&format!("{NAMES}admin"), true).await?.1;
        Ok(house)
    }

    /// A user of that name, made if there is none, and a session.
    pub(super) async fn user(&self, name: &str, admin: bool) -> anyhow::Result<(UserId, String)> {
        let mut tx = self.pool.begin().await.map_err(|(_, error)| error)?;
        // Asked first: a name that is taken would end the transaction.
        let known = sqlx::query_scalar!("select id from users where name = $1", name)
            .fetch_optional(&mut *tx)
            .await?;
        let id = match known {
            Some(id) => UserId(id),
            None => users::insert(&mut tx, name, &self.hash, admin)
                .await?
                .with_context(|| format!("{name} was made by somebody else in this moment"))?,
        };
        let session = users::begin_session(&mut tx, id).await?;
        tx.commit().await?;
        Ok((id, session.token))
    }

    /// A user for one run only, with money.
    pub(super) async fn payer(&self) -> anyhow::Result<(UserId, String)> {
        self.user(&format!("{NAMES}{}", Uuid::now_v7().simple()), false).await
    }

    /// A connection to the Redis that the shop locks with.
    pub(super) async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        connect(&self.redis_url).await
    }

    /// Lets everybody go on, and waits until everybody answers.
    pub(super) async fn restore(&self) -> anyhow::Result<()> {
        let hands = self.hands.replicas.iter().chain(&self.hands.nodes).chain([&self.hands.redis]);
        for hand in hands {
            hand.resume().await;
        }
        let end = Instant::now() + BACK_WITHIN;
        for (at, replica) in self.replicas.iter().enumerate() {
            while !ready(*replica).await {
                if Instant::now() > end {
                    bail!("{} does not come back", self.hands.replicas[at].name());
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

/// A connection to that Redis.
pub(super) async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    client.get_multiplexed_async_connection().await.context("Redis does not answer")
}

/// Whether a replica answers, and Postgres and Redis answer it.
async fn ready(replica: SocketAddr) -> bool {
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let asked = tokio::time::timeout(Duration::from_secs(3), load::ask(replica, request)).await;
    matches!(asked, Ok(Ok((200, _))))
}
