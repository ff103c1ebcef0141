//! `docs/ARCHITECTURE.md` follows one order, alone and forwarded. The spans of a real one name the
//! files of its steps.

use std::sync::Arc;
use std::time::Duration;

use holdfast_shop::model::RequestedLine;
use holdfast_shop::{IdempotencyKey, RequestContext, Shop as Domain, engine};
use holdfast_testkit::{Shop, until};
use parking_lot::Mutex;
use regex::Regex;
use tokio::join;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::span::{Attributes, Id};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry;
use uuid::Uuid;

/// The spans of the engine, in the order in which they begin: name, and file below `src`.
#[derive(Debug, Clone, Default)]
struct Steps(Arc<Mutex<Vec<(&'static str, &'static str)>>>, Arc<Notify>);

impl<S: Subscriber> Layer<S> for Steps {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let metadata = attributes.metadata();
        let file = metadata.file().and_then(|file| file.split_once("holdfast-shop/src/"));
        if let Some((_, file)) = file {
            self.0.lock().push((metadata.name(), file));
        }
        if metadata.name() == "accept" {
            self.1.notify_one();
        }
    }
}

impl Steps {
    /// Asserts that the steps have these names, and that the table of the document's section names
    /// their files in that order.
    fn assert_documented(&self, expected: &[&str], section: &str) {
        let steps = self.0.lock().clone();
        let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, expected, "{steps:?}");

        let text = std::fs::read_to_string("docs/ARCHITECTURE.md").unwrap();
        let text = text.split(&format!("\n## {section}\n")).nth(1).unwrap();
        let text = text.split("\n## ").next().unwrap();
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

/// The item of the first order is not that of the second, which then begins without a lease.
async fn place_order(shop: &Shop, domain: &Domain, user: &str, sku: &str) {
    let user = shop.user_id(user).await;
    let lines = [RequestedLine { sku: sku.to_owned().try_into().unwrap(), quantity: 1 }];
    let context = RequestContext::new(domain, Uuid::new_v4());
    let key = IdempotencyKey::generate();
    engine::place_order(domain, &context, user, key, &lines, None).await.unwrap();
}

// One thread, whose subscriber sees the tasks that the order spawns.
#[tokio::test]
async fn order_walks_as_documented() {
    let shop = Shop::without_replicas().await;
    let domain = shop.in_process("batched");
    let steps = Steps::default();
    place_order(&shop, &domain, "bob", "brass-padlock").await;
    // A span whose code another thread reaches first while this subscriber is the only one stays
    // off (a fault of `tracing-core`). By now, another order has reached all of them.
    let _seen = subscriber::set_default(registry().with(steps.clone()));
    place_order(&shop, &domain, "alice", "deadbolt").await;

    let names = ["wait", "batch", "held", "read", "decide", "write"];
    steps.assert_documented(&names, "From `POST /api/orders` to the ledger");
}

/// The holder's write of an order waits for the item's row until it has accepted another one.
#[tokio::test]
async fn forwarded_order_walks_as_documented() {
    let shop = Shop::without_replicas().await;
    let [holder, sender] = ["batched"; 2].map(|strategy| shop.in_process(strategy));
    let key = Uuid::new_v4();
    engine::delegation::start(&holder, key);
    engine::delegation::start(&sender, key);
    let steps = Steps::default();
    place_order(&shop, &holder, "bob", "brass-padlock").await;
    let _seen = subscriber::set_default(registry().with(steps.clone()));

    // Nothing is forwarded before both have subscribed to their messages.
    until("an order is forwarded", async || {
        let mut row = shop.pool.begin().await.unwrap();
        let lock = "select from items where sku = 'deadbolt' for update";
        sqlx::query(lock).execute(&mut *row).await.unwrap();
        let forwarding = async {
            until("the write waits", async || shop.waiting_sessions().await == 1).await;
            steps.0.lock().clear();
            join!(place_order(&shop, &sender, "alice", "deadbolt"), async {
                let accepted = timeout(Duration::from_millis(300), steps.1.notified()).await;
                row.rollback().await.unwrap();
                accepted.is_ok()
            })
        };
        let ((), ((), is_accepted)) =
            join!(place_order(&shop, &holder, "bob", "deadbolt"), forwarding);
        is_accepted
    })
    .await;

    let names = ["wait", "forward", "accept", "batch", "held", "decide", "write"];
    steps.assert_documented(&names, "Several replicas, one item");
}
