//! Rate limits per client, shared by all replicas through Redis.
//!
//! Guarantees: per [`Policy`] and name, all replicas together admit at most `burst + rate × w`
//! requests in any time span `w` (one more by rounding), by the clock of Redis. A rejection by a
//! bucket that is known to be empty costs no call to Redis, and a busy client's request rarely
//! does: a replica leases the permits it expects to need within 200 ms, and concurrent requests for
//! permits share one call.
//!
//! Does not guarantee that the whole limit is usable: permits leased by a replica that the client
//! no longer uses are lost (at most 200 ms of the rate per replica), and a bucket found empty is
//! not asked again for up to 50 ms. If Redis loses its data, a burst is possible again. While Redis
//! is unavailable, each replica applies the whole limit alone. Memory is bounded: [`MOST_NAMES`]
//! names per process; in Redis a bucket expires as soon as it is full.
//!
//! Tests: `tests/it/rate_limits.rs`.

pub mod bucket;
mod desk;
mod page;
mod rate;

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use parking_lot::Mutex;

use crate::clock::monotonic_us;
use crate::lock::Redis;
use desk::{Desk, Told};
use page::{Entry, Page};
pub use rate::Rate;

/// Upper bound of names in memory; a request of an evicted name costs a call.
const MOST_NAMES: u64 = 50_000;
/// Idle time after which a name is evicted.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);

/// A rate limit: its name in headers, and the rate per client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Lower case and dashes.
    pub name: &'static str,
    pub rate: Rate,
}

/// A client's status under one limit, as far as this replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub policy: Policy,
    pub left: u64,
    /// Time until a whole burst is available, in seconds, rounded up.
    pub full_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Pass(Vec<Standing>),
    Refused {
        by: Policy,
        wait: Duration,
        /// The status under all limits of the request.
        standings: Vec<Standing>,
    },
}

/// The rate limits of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter {
    desk: Arc<Desk>,
    pages: Cache<String, SharedPage>,
}

/// The local state of a bucket, shared by all requests for it.
type SharedPage = Arc<Mutex<Page>>;

/// One limit for one name, with its local state.
#[derive(Debug, Clone)]
struct Ticket {
    policy: Policy,
    /// Identifies the bucket in Redis, after the prefix.
    name: String,
    page: SharedPage,
}

impl Limiter {
    /// Creates limits that all processes with the same Redis and prefix share.
    pub fn new(redis: Redis, prefix: &str) -> Self {
        let pages = Cache::builder().max_capacity(MOST_NAMES).time_to_idle(FORGOTTEN_AFTER).build();
        Self { desk: Arc::new(Desk::new(redis, prefix)), pages }
    }

    /// Takes one permit of each limit for its name, or rejects the request. A rejection costs no
    /// permit if this replica knows of it in advance; if Redis has to be asked, permits granted by
    /// the request's other limits are spent.
    ///
    /// A call to Redis times out after 200 ms; then this replica applies the limit alone.
    ///
    /// # Cancel safety
    /// Safe: permits on their way to a dropped future are lost, and nothing else.
    pub async fn pass(&self, wanted: &[(Policy, &str)]) -> Verdict {
        let tickets: Vec<Ticket> =
            wanted.iter().map(|(policy, who)| self.ticket(*policy, who)).collect();
        let now_us = monotonic_us();
        // Checks all limits before it spends a permit.
        for ticket in &tickets {
            let entry = ticket.page.lock().look(now_us);
            if let Entry::Refused { wait_us } = entry {
                return refused(&tickets, ticket.policy, wait_us);
            }
        }
        let mut open = Vec::new();
        for ticket in &tickets {
            let entry = ticket.page.lock().spend(now_us);
            match entry {
                Entry::Pass => {}
                Entry::Refused { wait_us } => return refused(&tickets, ticket.policy, wait_us),
                Entry::Ask => open.push(ticket.clone()),
            }
        }
        if !open.is_empty() {
            let told = self.desk.ask(&open).await;
            for (ticket, told) in open.iter().zip(told) {
                let entry = match told {
                    Told::Pass => Entry::Pass,
                    Told::Refused { wait_us } => Entry::Refused { wait_us },
                    Told::Alone => ticket.page.lock().alone(ticket.policy.rate, monotonic_us()),
                };
                if let Entry::Refused { wait_us } = entry {
                    return refused(&tickets, ticket.policy, wait_us);
                }
            }
        }
        Verdict::Pass(standings(&tickets))
    }

    /// Remembers `what` for `long`; see [`Limiter::knows`]. Does nothing while Redis is
    /// unavailable.
    pub async fn remember(&self, what: &str, long: Duration) {
        self.desk.remember(what, long).await;
    }

    /// Returns whether `what` is remembered, by one call; `false` while Redis is unavailable.
    pub async fn knows(&self, what: &str) -> bool {
        self.desk.knows(what).await
    }

    fn ticket(&self, policy: Policy, who: &str) -> Ticket {
        let name = format!("{}:{who}", policy.name);
        let page = match self.pages.get(&name) {
            Some(page) => page,
            None => self.pages.get_with_by_ref(&name, SharedPage::default),
        };
        Ticket { policy, name, page }
    }
}

fn refused(tickets: &[Ticket], by: Policy, wait_us: u64) -> Verdict {
    metrics::counter!("holdfast_limit_refusals_total", "limit" => by.name).increment(1);
    let standings = standings(tickets);
    Verdict::Refused { by, wait: Duration::from_micros(wait_us), standings }
}

fn standings(tickets: &[Ticket]) -> Vec<Standing> {
    let now_us = monotonic_us();
    let standing = |ticket: &Ticket| {
        let page = ticket.page.lock();
        let full_s = page.full_us(now_us).div_ceil(1_000_000);
        Standing { policy: ticket.policy, left: page.left(now_us), full_s }
    };
    tickets.iter().map(standing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy { name: "address", rate: text.parse().unwrap_or_else(|_| unreachable!()) }
    }

    /// A limiter whose Redis is unavailable.
    fn away() -> Limiter {
        let redis = Redis::open("redis://127.0.0.1:1").unwrap_or_else(|_| unreachable!());
        Limiter::new(redis, "test:")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replica_limits_locally_without_redis() {
        let limiter = away();
        let policy = policy("1/h:20");
        let mut passed = 0;
        for _ in 0..100 {
            passed +=
                usize::from(matches!(limiter.pass(&[(policy, "1.2.3.4")]).await, Verdict::Pass(_)));
        }
        assert_eq!(passed, 20);
        let other = limiter.pass(&[(policy, "1.2.3.5")]).await;
        assert!(matches!(other, Verdict::Pass(_)), "{other:?}");
        assert!(!limiter.knows("anybody").await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_addresses_use_bounded_memory() {
        let limiter = away();
        let policy = policy("50/s");
        for n in 0..200_000_u32 {
            let ticket = limiter.ticket(policy, &std::net::Ipv4Addr::from(n).to_string());
            ticket.page.lock().spend(0);
        }
        limiter.pages.run_pending_tasks();
        assert!(limiter.pages.entry_count() <= MOST_NAMES, "{}", limiter.pages.entry_count());
    }
}
