//! Rate limits per client, which all replicas share through Redis.
//!
//! Guarantees: of one [`Policy`] and one name, in any span of time `w`, all replicas together let
//! at most `burst + rate × w` requests pass (one more by rounding), by the clock of Redis. A
//! refusal costs no call to Redis, nor does a busy client's request: a replica leases permits for
//! what it expects within 200 ms, and all who need permits at the same time share one call.
//!
//! Does not guarantee that the whole limit can be used: permits leased by a replica whose client
//! has gone elsewhere are lost (at most 200 ms of the rate, per replica), and a bucket found empty
//! is left alone for up to 50 ms.
//!
//! What breaks it: a Redis that forgets what was spent, so a burst may come again. While Redis is
//! away, each replica keeps the whole limit alone. Memory is bounded: [`MOST_NAMES`] names in this
//! process; in Redis a bucket expires as soon as it is full.

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

/// Names that a replica remembers; beyond that, those seen least cost a call when they return.
const MOST_NAMES: u64 = 50_000;
/// Whoever was not seen for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);

/// A limit: what it is called in headers, and how much it allows to each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Its name: lower case and dashes.
    pub name: &'static str,
    pub rate: Rate,
}

/// How somebody stands with one limit, as far as this replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub policy: Policy,
    pub left: u64,
    /// Until that is a whole burst again, in whole seconds.
    pub full_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Pass(Vec<Standing>),
    Refused {
        by: Policy,
        wait: Duration,
        /// How it stands with all limits that were looked at.
        standings: Vec<Standing>,
    },
}

/// The limits of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter {
    desk: Arc<Desk>,
    pages: Cache<String, SharedPage>,
}

/// A page that whoever asks for that name shares.
type SharedPage = Arc<Mutex<Page>>;

/// One limit, one name, and what is known of them.
#[derive(Debug, Clone)]
struct Ticket {
    policy: Policy,
    /// What follows the prefix in Redis.
    name: String,
    page: SharedPage,
}

impl Limiter {
    /// Limits that are shared by all who use that Redis with that prefix.
    pub fn new(redis: Redis, prefix: &str) -> Self {
        let pages = Cache::builder().max_capacity(MOST_NAMES).time_to_idle(FORGOTTEN_AFTER).build();
        Self { desk: Arc::new(Desk::new(redis, prefix)), pages }
    }

    /// Whether one more request may pass, by each of some limits for each of some names. A request
    /// that is refused costs nothing where this replica knows it beforehand; where it has to ask,
    /// what another of the limits has granted is spent.
    ///
    /// It answers within a quarter of a second, whatever Redis does.
    ///
    /// # Cancel safety
    /// Safe: permits that are on their way to somebody who has gone are lost, and no more.
    pub async fn pass(&self, wanted: &[(Policy, &str)]) -> Verdict {
        let tickets: Vec<Ticket> =
            wanted.iter().map(|(policy, who)| self.ticket(*policy, who)).collect();
        let now_us = monotonic_us();
        // Looked at before anything is spent.
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

    /// Remembers for so long that this is known: see [`Limiter::knows`]. With Redis away it is not.
    pub async fn remember(&self, what: &str, long: Duration) {
        self.desk.remember(what, long).await;
    }

    /// Whether that was remembered (one call each time); `false` with Redis away.
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

    /// A Redis that nobody is at.
    fn away() -> Limiter {
        let redis = Redis::open("redis://127.0.0.1:1").unwrap_or_else(|_| unreachable!());
        Limiter::new(redis, "test:")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_redis_away_the_door_is_open_and_the_limit_this_replicas_own() {
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
    async fn a_flood_of_addresses_fills_no_memory() {
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
