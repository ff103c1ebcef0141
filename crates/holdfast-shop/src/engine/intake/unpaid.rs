//! Limits the unpaid orders of a user, each of which keeps units and costs an expiry.
//!
//! Counted in Postgres at most once a second per user and process, and again before a rejection;
//! in between this process adds the orders that it admits. Not exact: a user can exceed the limit
//! by as many orders as the rate limit admits at once. Tests: `tests/it/abuse.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use moka::sync::Cache;
use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::{Builder, Uuid};

use crate::UserId;
use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::engine::duplicates::LOOKUP_TIMEOUT;
use crate::failure::{Error, Failure, Rejection, with_timeout};
use crate::tasks::Tasks;

const COUNT_TTL: Duration = Duration::from_secs(1);
/// Upper bound of the counts in memory; without one, a user's next order costs a query.
const MAX_USERS: u64 = 10_000;
/// Upper bound of the orders that a count reads, newest first. At the default rate limit a user
/// places and cancels hardly more within the default payment window.
const MAX_COUNTED_ORDERS: i64 = 20_000;
/// Added to the age of the counted orders: clocks differ, and expiry may be late.
const AGE_SLACK: Duration = Duration::from_mins(5);
const MIN_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct UnpaidOrders {
    counts: Cache<UserId, Arc<UnpaidCount>>,
    /// Each counts the unpaid orders that are younger than the given age.
    lookups: Coalescer<(), (UserId, Duration), Arc<UnpaidCount>>,
}

#[derive(Debug)]
struct UnpaidCount {
    orders: AtomicI64,
    due_at: Instant,
}

impl UnpaidCount {
    fn reaches(&self, max: u32) -> bool {
        self.orders.load(Ordering::Relaxed) >= i64::from(max)
    }
}

impl UnpaidOrders {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
        let counts = Cache::builder().max_capacity(MAX_USERS).time_to_live(COUNT_TTL).build();
        let pool = pool.clone();
        let cache = counts.clone();
        let lookups = Coalescer::new(tasks, move |(), requests| {
            look_up(pool.clone(), cache.clone(), requests)
        });
        Self { counts, lookups }
    }

    pub async fn admit(
        &self,
        user: UserId,
        max: u32,
        payment_window: Duration,
    ) -> Result<(), Failure> {
        let known = self.counts.get(&user).filter(|count| !count.reaches(max));
        let count = match known {
            Some(count) => count,
            // Also before a rejection: some may be paid by now.
            None => {
                let lookup = self.lookups.look_up((), (user, payment_window + AGE_SLACK));
                with_timeout(LOOKUP_TIMEOUT, lookup).await?
            }
        };
        if count.reaches(max) {
            let wait = count.due_at.saturating_duration_since(Instant::now()).max(MIN_WAIT);
            return Err(Rejection::TooManyUnpaid { max, wait }.into());
        }

        // Not taken back if the order fails: the next count corrects it within a second.
        count.orders.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

async fn look_up(
    pool: Pool,
    cache: Cache<UserId, Arc<UnpaidCount>>,
    requests: Vec<(UserId, Duration)>,
) -> Result<Vec<Arc<UnpaidCount>>, Error> {
    let mut users: Vec<UserId> = requests.iter().map(|(user, _)| *user).collect();
    users.sort();
    users.dedup();
    // The longest of all: for the others the query only reads further, as it counts pending orders.
    let age = requests.iter().map(|(_, age)| *age).max().unwrap_or_default();
    let counts = read(&pool, &users, age).await?.into_iter().map(Arc::new);
    let counts: HashMap<UserId, Arc<UnpaidCount>> = users.into_iter().zip(counts).collect();

    for (user, count) in &counts {
        cache.insert(*user, count.clone());
    }
    Ok(requests.iter().map(|(user, _)| counts[user].clone()).collect())
}

async fn read(pool: &Pool, users: &[UserId], age: Duration) -> Result<Vec<UnpaidCount>, Error> {
    let ids: Vec<Uuid> = users.iter().map(|user| user.0).collect();
    let oldest = oldest_id(age);

    let reading = pool.read(move |db| {
        let ids = ids.clone();
        async move {
            sqlx::query!(
                r#"select counted.orders as "orders!",
                          extract(epoch from counted.due_at - clock_timestamp())::float8 as due_in_s
                     from unnest($1::uuid[]) with ordinality as asked (id, place),
                          lateral (
                            select count(*) as orders, min(expires_at) as due_at
                              from (select status, expires_at from orders
                                     where user_id = asked.id and id > $2
                                     order by id desc limit $3) as newest
                             where status = 'pending') as counted
                    order by asked.place"#,
                &ids,
                oldest,
                MAX_COUNTED_ORDERS,
            )
            .fetch_all(db)
            .await
        }
        .boxed()
    });

    let now = Instant::now();
    let counts = reading.await?.0.into_iter().map(|row| {
        // Due already: its expiry is under way.
        let due_in = Duration::from_secs_f64(row.due_in_s.unwrap_or_default().max(0.0));
        UnpaidCount { orders: AtomicI64::new(row.orders), due_at: now + due_in }
    });
    Ok(counts.collect())
}

/// Returns an id below those of younger orders: the ids of orders begin with their time (UUIDv7).
fn oldest_id(age: Duration) -> Uuid {
    let millis = (OffsetDateTime::now_utc() - age).unix_timestamp_nanos() / 1_000_000;
    Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or_default(), &[0; 10])
        .into_uuid()
}
