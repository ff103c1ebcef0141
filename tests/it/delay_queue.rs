//! The delay queue on Redis by itself: at least once, to one worker at a time, and never too large.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast::jobs::order_expiry::queue::DelayQueue;
use holdfast_lock::Redis;
use uuid::Uuid;

use crate::common::{services, until};

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_claimed_once_and_redelivered() {
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let mut queue = DelayQueue::new(redis, format!("test-{}:", Uuid::new_v4().simple()));
    // Long enough for eight workers to take a thousand on a busy machine, and to wait for.
    queue.visibility_timeout = Duration::from_secs(5);
    let ids: Vec<Uuid> = (0..1_000).map(|_| Uuid::now_v7()).collect();
    let due: Vec<_> = ids.iter().map(|id| (*id, Duration::ZERO)).collect();
    for some in due.chunks(300) {
        assert_eq!(queue.add(some).await.unwrap(), Vec::<Uuid>::new());
        assert_eq!(queue.add(some).await.unwrap(), Vec::<Uuid>::new(), "twice is once");
    }
    let workers = (0..8).map(|_| async {
        let mut mine = Vec::new();
        loop {
            let claimed = queue.claim(64).await.unwrap();
            if claimed.ids.is_empty() {
                return mine;
            }
            mine.extend(claimed.ids);
        }
    });
    let claimed: Vec<Uuid> = join_all(workers).await.into_iter().flatten().collect();
    let each: BTreeSet<Uuid> = claimed.iter().copied().collect();
    assert_eq!((claimed.len(), each.len()), (1_000, 1_000), "each once");
    // One half is done. The other's workers are never heard of again.
    let (done, lost) = ids.split_at(500);
    queue.remove(done).await.unwrap();
    let mut again = BTreeSet::new();
    until("what was claimed and not done is due again", async || {
        again.extend(queue.claim(1_000).await.unwrap().ids);
        again.len() >= 500
    })
    .await;
    assert_eq!(again, lost.iter().copied().collect());
    queue.remove(lost).await.unwrap();
    assert_eq!(queue.lengths().await.unwrap(), (0, 0), "and no key is left");
    assert_eq!(queue.add(&due).await.unwrap(), Vec::<Uuid>::new());
    queue.clear().await.unwrap();
    assert_eq!(queue.lengths().await.unwrap(), (0, 0), "whatever it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_claims_hold_and_removed_stay_removed() {
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let name = format!("test-{}:", Uuid::new_v4().simple());
    let [queue, patient] = [100, 60_000].map(|ms| {
        let mut queue = DelayQueue::new(redis.clone(), name.clone());
        queue.visibility_timeout = Duration::from_millis(ms);
        queue
    });
    let ids: Vec<Uuid> = (0..90).map(|_| Uuid::now_v7()).collect();
    let (renewed, rest) = ids.split_at(30);
    let (done, lost) = rest.split_at(30);
    let brought = queue.bring_forward(&ids).await.unwrap();
    assert_eq!((brought.added, brought.no_room), (90, Vec::new()));
    assert_eq!(patient.claim(90).await.unwrap().ids.len(), 90);
    queue.remove(done).await.unwrap();
    queue.renew(lost).await.unwrap();
    patient.renew(&[renewed, done].concat()).await.unwrap();
    let mut again = BTreeSet::new();
    until("what was not renewed for long is due again", async || {
        again.extend(queue.claim(90).await.unwrap().ids);
        again.len() >= 30
    })
    .await;
    assert_eq!(again, lost.iter().copied().collect());
    assert_eq!(queue.lengths().await.unwrap().0, 60, "what is done is not brought back");
    let brought = patient.bring_forward(&[renewed, done].concat()).await.unwrap();
    assert_eq!(brought.added, 30, "those that were done");
    queue.remove(&ids).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn full_shard_reports_entries_without_room() {
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let name = format!("test-{}:", Uuid::new_v4().simple());
    let mut queue = DelayQueue::new(redis, name);
    queue.max_per_shard = 3;
    // So many that random ids fill every shard.
    let later: Vec<_> = (0..1_600).map(|_| (Uuid::now_v7(), Duration::from_secs(3_600))).collect();
    let no_room = queue.add(&later).await.unwrap();
    assert_eq!(queue.lengths().await.unwrap(), (96, 3));
    assert_eq!(no_room.len(), 1_600 - 96);
    assert_eq!(queue.add(&later).await.unwrap(), no_room, "who is in has room");
    let claimed = queue.claim(1).await.unwrap();
    assert!(claimed.ids.is_empty());
    assert!(claimed.next_in.unwrap() > Duration::from_secs(3_500), "{claimed:?}");
    queue.remove(&later.iter().map(|(id, _)| *id).collect::<Vec<_>>()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_add_keeps_the_due_time() {
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let queue = DelayQueue::new(redis, format!("test-{}:", Uuid::new_v4().simple()));
    // More per shard than one call of ZADD is given.
    let ids: Vec<Uuid> = (0..20_000).map(|_| Uuid::now_v7()).collect();
    let due_in = |span: Duration| ids.iter().map(|id| (*id, span)).collect::<Vec<_>>();
    let hour = Duration::from_secs(3_600);
    assert!(queue.add(&due_in(hour)).await.unwrap().is_empty());
    assert_eq!(queue.lengths().await.unwrap().0, 20_000);
    assert!(queue.add(&due_in(Duration::ZERO)).await.unwrap().is_empty());
    assert_eq!(queue.lengths().await.unwrap().0, 20_000);
    let claimed = queue.claim(1_000).await.unwrap();
    assert!(claimed.ids.is_empty() && claimed.next_in.unwrap() > hour / 2, "{claimed:?}");
    queue.postpone(&due_in(Duration::ZERO)).await.unwrap();
    assert_eq!(queue.claim(1_000).await.unwrap().ids.len(), 1_000, "all of them are put off");
    queue.remove(&ids).await.unwrap();
    assert_eq!(queue.lengths().await.unwrap(), (0, 0));
}
