//! A caller that disconnects at any moment: an order is placed once or not at all, the audit is
//! sound, and a retry with the same key gets the true result.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use holdfast_lock::inspect::HeldLock;
use holdfast_shop::engine;
use holdfast_shop::model::{Order, RequestedLine};
use holdfast_shop::probe::{Pause, PauseBoard, Point, Probe, RequestProbe};
use holdfast_shop::{Execution, Failure, IdempotencyKey, RequestContext, Shop, UserId};
use holdfast_testkit::cut::Cut;
use holdfast_testkit::{TestShop, until};
use serde_json::json;
use uuid::Uuid;

const STOCK: i64 = 1_000;

/// A shop in this process, beside the replicas.
struct ShopInProcess {
    shop: TestShop,
    domain: Shop,
    user: UserId,
    lines: [RequestedLine; 1],
}

impl ShopInProcess {
    async fn new(strategy: &str) -> Self {
        // The replica has no part in it; `serve` refuses what is for the lab only.
        let shop = TestShop::start(1).await;
        let sku = shop.lab_item(STOCK).await;
        let domain = shop.in_process(strategy);
        let user = shop.user_id("alice").await;
        let lines = [RequestedLine { sku: sku.try_into().unwrap(), quantity: 1 }];
        Self { shop, domain, user, lines }
    }

    fn context(&self) -> RequestContext {
        RequestContext::new(&self.domain, Uuid::new_v4())
    }

    async fn place(
        &self,
        context: &RequestContext,
        key: &IdempotencyKey,
    ) -> Result<Execution, Failure> {
        let (domain, lines) = (&self.domain, &self.lines);
        engine::place_order(domain, context, self.user, key.clone(), lines, None).await
    }

    /// Waits until commands whose caller has disconnected have ended.
    async fn wait_for_commands(&self) {
        self.domain.tasks.wait().await;
        // The key locks of finished commands expire later.
        let is_left = |lock: &HeldLock| !lock.key.contains("token:");
        let held = async || self.domain.locks.held_locks().await.unwrap();
        until("no lock is left", async || !held().await.iter().any(is_left)).await;
    }

    /// Waits until the lock of a key whose command was not executed is released, in the background.
    async fn wait_for_key(&self, key: &IdempotencyKey) {
        let held = async || self.domain.locks.held_locks().await.unwrap();
        let is_of_key = |lock: &HeldLock| lock.key.contains(key.as_str());
        until("the key is released", async || !held().await.iter().any(is_of_key)).await;
    }

    async fn orders(&self, key: &IdempotencyKey) -> i64 {
        let count = sqlx::query_scalar("select count(*) from orders where token = $1");
        count.bind(key.as_str()).fetch_one(&self.shop.pool).await.unwrap()
    }

    /// Retries with the same key: the response is the order in the database, new or replayed.
    async fn assert_retry_is_consistent(&self, key: &IdempotencyKey) {
        self.wait_for_commands().await;
        let placed = self.orders(key).await;
        assert!(placed <= 1, "one order per key");
        if placed == 0 {
            self.wait_for_key(key).await;
        }
        let executed = self.place(&self.context(), key).await.unwrap();
        assert_eq!(i64::from(executed.replayed), placed, "replayed if it was placed");
        let order: Order = executed.response.read().unwrap();
        let recorded = sqlx::query_scalar("select id from orders where token = $1");
        let recorded: Uuid = recorded.bind(key.as_str()).fetch_one(&self.shop.pool).await.unwrap();
        assert_eq!(order.id.0, recorded);
    }

    async fn assert_sound(&self, sold: usize) {
        self.wait_for_commands().await;
        let audit = self.shop.item_audit(self.lines[0].sku.as_str()).await;
        assert_eq!(audit["sold"], sold, "one order per key");
        assert_eq!(audit["ok"], true, "{audit}");
        assert_eq!((&audit["unsettled"], &audit["undersold"]), (&json!(0), &json!(0)), "{audit}");
        self.shop.assert_sound().await;
    }
}

const STRATEGIES: [&str; 9] = [
    "check-then-del",
    "owner",
    "fenced",
    "row-lock",
    "atomic",
    "serializable",
    "queue",
    "pre-deduct",
    "batched",
];

#[tokio::test]
async fn dropped_future_places_order_at_most_once() {
    for strategy in STRATEGIES {
        let shop = ShopInProcess::new(strategy).await;
        let mut keys = 0;
        for cut in Cut::all() {
            let key = IdempotencyKey::generate();
            keys += 1;
            let placing = async { shop.place(&shop.context(), &key).await };
            let complete = cut.run(&AtomicUsize::new(0), placing).await.is_some();
            shop.assert_retry_is_consistent(&key).await;
            if complete {
                break;
            }
        }
        assert!(keys > 2);
        shop.assert_sound(keys).await;
    }
}

/// The order runs in its own task: the caller disconnects while it is at that point.
#[tokio::test(flavor = "multi_thread")]
async fn caller_lost_at_any_probe_point_is_safe() {
    let points = [
        (Point::Wait, false),
        (Point::Held, false),
        (Point::Deducted, false),
        (Point::Read, true),
        (Point::Write, true),
        (Point::Commit, true),
        (Point::Committed, true),
        (Point::Release, true),
    ];
    for strategy in STRATEGIES {
        let shop = ShopInProcess::new(strategy).await;
        let mut sold = 0;
        for (point, is_executed) in points {
            let is_passed = match point {
                Point::Held => shop.domain.strategy.lock.is_some(),
                Point::Deducted => shop.domain.strategy.data_path.is_some(),
                _ => true,
            };
            if !is_passed {
                continue;
            }
            let key = IdempotencyKey::generate();
            let context = shop.context();
            let length = Some(Duration::from_millis(100));
            let watch = Arc::new(RequestProbe {
                record: true,
                pause: Some(Pause { at: Some(point), length, until: context.deadline }),
                ..RequestProbe::new("here", context.request_id, &PauseBoard::default())
            });
            let context = context.probed(Probe::Lab(watch.clone()));
            let is_reached =
                async || watch.events.lock().iter().any(|event| event.event == point.name());
            tokio::select! {
                _ = shop.place(&context, &key) => panic!("{strategy} {point:?}: it was not paused"),
                () = until("it reaches the point", is_reached) => {}
            }
            shop.wait_for_commands().await;
            // A batch that has begun is executed even if its callers disconnect.
            let is_executed = is_executed || point == Point::Held && shop.domain.strategy.batches;
            assert_eq!(shop.orders(&key).await, i64::from(is_executed), "{strategy} {point:?}");
            shop.assert_retry_is_consistent(&key).await;
            sold += 1;
        }
        shop.assert_sound(sold).await;
    }
}
