//! `docs/ARCHITECTURE.md` follows one order, alone and forwarded. The spans of a real one name the
//! files of its steps.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use holdfast_shop::model::RequestedLine;
use holdfast_shop::{IdempotencyKey, RequestContext, Shop, engine};
use holdfast_testkit::{TestShop, until};
use parking_lot::Mutex;
use regex::Regex;
use tokio::join;
use tokio::time::timeout;
use tracing::callsite::rebuild_interest_cache;
use tracing::span::{Attributes, Id};
use tracing::subscriber::{self, DefaultGuard};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry;
use uuid::Uuid;

/// The spans of the engine, in the order in which they begin: name, and file below `src`.
#[derive(Debug, Clone, Default)]
struct Steps(Arc<Mutex<Vec<(&'static str, &'static str)>>>);

impl<S: Subscriber> Layer<S> for Steps {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let metadata = attributes.metadata();
        let file = metadata.file().and_then(|file| file.split_once("holdfast-shop/src/"));
        if let Some((_, file)) = file {
            self.0.lock().push((metadata.name(), file));
        }
    }
}

impl Steps {
    fn names(&self) -> Vec<&'static str> {
        self.0.lock().iter().map(|(name, _)| *name).collect()
    }

    /// Asserts that the steps have these names, and that the table of the document's section names
    /// their files in that order.
    fn assert_documented(&self, expected: &[&str], section: &str) {
        let steps = self.0.lock().clone();
        assert_eq!(self.names(), expected, "{steps:?}");

        let text = std::fs::read_to_string("docs/ARCHITECTURE.md").unwrap();
        let text = text.split(&format!("\n### {section}\n")).nth(1).unwrap();
        let text = text.split("\n##").next().unwrap();
        let file = Regex::new("`(engine/[a-z_/]+\\.rs)`").unwrap();
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let documented: Vec<&str> = rows
            .flat_map(|row| file.captures_iter(row))
            .map(|found| found.get(1).unwrap().as_str())
            .collect();

        let mut rest = documented.iter();
        let mut last = "";
        for (name, file) in &steps {
            assert!(*file == last || rest.any(|it| it == file), "{name} is in {file}: {steps:?}");
            last = file;
        }
    }
}

async fn place_order(shop: &TestShop, domain: &Shop, user: &str, sku: &str) {
    let user = shop.user_id(user).await;
    let lines = [RequestedLine { sku: sku.to_owned().try_into().unwrap(), quantity: 1 }];
    let context = RequestContext::new(domain, Uuid::new_v4());
    let key = IdempotencyKey::generate();
    engine::place_order(domain, &context, user, key, &lines, None).await.unwrap();
}

/// Returns the steps from here on, of this thread and the tasks that its orders spawn.
///
/// While a process has one subscriber, `tracing-core` asks that of the current thread alone whether
/// a span is on, once and for all: a span that another test's thread reaches first would stay off.
/// So there is a second one, and an order of an item that no test walks with reaches all spans
/// before they are asked again.
async fn observe(shop: &TestShop, domain: &Shop) -> (Steps, DefaultGuard) {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(registry()));
    LazyLock::force(&SECOND);

    let steps = Steps::default();
    let seen = subscriber::set_default(registry().with(steps.clone()));
    place_order(shop, domain, "bob", "deadbolt").await;
    rebuild_interest_cache();
    steps.0.lock().clear();
    (steps, seen)
}

#[tokio::test]
async fn order_walks_as_documented() {
    let shop = TestShop::without_replicas().await;
    let domain = shop.in_process("batched");
    let (steps, _seen) = observe(&shop, &domain).await;

    place_order(&shop, &domain, "alice", "brass-padlock").await;
    let names = ["wait", "batch", "held", "read", "decide", "write"];
    steps.assert_documented(&names, "From `POST /api/orders` to the ledger");
}

/// The holder's write of an order waits for the item's row until it has accepted another one.
#[tokio::test]
async fn forwarded_order_walks_as_documented() {
    let shop = TestShop::without_replicas().await;
    let [holder, sender] = ["batched"; 2].map(|strategy| shop.in_process(strategy));
    let key = Uuid::new_v4();
    engine::delegation::start(&holder, key);
    engine::delegation::start(&sender, key);
    let (steps, _seen) = observe(&shop, &holder).await;

    // A message that nobody receives would keep the next orders here for seconds.
    let channels = format!("{}mail:*", holder.locks.leases().settings().key_prefix);
    let redis = holder.locks.redis();
    until("both receive messages", async || {
        let mut list = redis::cmd("PUBSUB");
        list.arg("CHANNELS").arg(&channels);
        redis.query::<Vec<String>>(list).await.unwrap().len() == 2
    })
    .await;

    let names = ["wait", "forward", "accept", "batch", "held", "decide", "write"];
    // A replica that is late waits for the lease itself: the order is forwarded in another round.
    until("an order is forwarded", async || {
        let mut row = shop.pool.begin().await.unwrap();
        let lock = "select from items where sku = 'brass-padlock' for update";
        sqlx::query(lock).execute(&mut *row).await.unwrap();

        let forwarding = async {
            until("the write waits", async || shop.waiting_sessions().await == 1).await;
            steps.0.lock().clear();
            let accepted = async {
                let accepted = until("accepted", async || steps.names().contains(&"accept"));
                let _ = timeout(Duration::from_millis(300), accepted).await;
                row.rollback().await.unwrap();
            };
            join!(place_order(&shop, &sender, "alice", "brass-padlock"), accepted);
        };
        join!(place_order(&shop, &holder, "bob", "brass-padlock"), forwarding);
        steps.names() == names
    })
    .await;
    steps.assert_documented(&names, "Several replicas, one item");
}
