//! `docs/ARCHITECTURE.md` follows one order. The spans of a real one name the files of its steps.

use std::sync::Arc;

use holdfast_shop::model::RequestedLine;
use holdfast_shop::{IdempotencyKey, RequestContext, Shop as Domain, UserId, engine};
use holdfast_testkit::Shop;
use parking_lot::Mutex;
use regex::Regex;
use tracing::span::{Attributes, Id};
use tracing::{Subscriber, subscriber};
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

/// Returns the engine's files that the document's table names, in its order.
fn documented() -> Vec<String> {
    let text = std::fs::read_to_string("docs/ARCHITECTURE.md").unwrap();
    let walk = text.split("## From `POST /api/orders` to the ledger").nth(1).unwrap();
    let walk = walk.split("\n## ").next().unwrap();
    let file = Regex::new("`(engine/[a-z_/]+\\.rs)`").unwrap();
    let rows = walk.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| file.captures_iter(row)).map(|found| found[1].to_owned()).collect()
}

/// The item of the first order is not that of the second, which then begins without a lease.
async fn place_order(shop: &Shop, domain: &Domain, user: &str, sku: &str) {
    let id = sqlx::query_scalar("select id from users where name = $1").bind(user);
    let user = UserId(id.fetch_one(&shop.pool).await.unwrap());
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

    let steps = steps.0.lock().clone();
    let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["wait", "batch", "held", "read", "decide", "write"], "{steps:?}");
    let mut rest = documented().into_iter();
    let mut last = "";
    for (name, file) in &steps {
        assert!(*file == last || rest.any(|it| it == *file), "{name} is in {file}: {steps:?}");
        last = file;
    }
}
