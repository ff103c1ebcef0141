//! A crowd over HTTP: clients with a connection each, which ask again as soon as they are answered.
//!
//! It runs on the cores of the server that it measures, so it does little: a request is bytes that
//! were put together before (only its key is new), an answer is read as far as its status and its
//! length, and JSON is not looked at. What was asked and answered when is kept only if
//! [`Plan::observe`] says so, for whoever checks the history afterwards.
//!
//! Does not guarantee an open loop: who waits long asks less often, so a latency here is that of
//! so many clients, and not of so many requests per second.

mod connection;
mod live;
pub mod script;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::clock::monotonic_us;
use connection::Connection;
pub use live::{Live, Moment};
pub use script::Script;

/// A client that lost its connection pauses before it dials again.
const REDIAL: Duration = Duration::from_millis(20);
/// One answer; the server cuts a request off sooner.
const PATIENCE: Duration = Duration::from_secs(20);
/// No latency is longer.
const LONGEST_US: u64 = 60_000_000;

#[derive(Debug)]
pub struct Client {
    pub target: SocketAddr,
    pub script: Box<dyn Script>,
}

#[derive(Debug)]
pub struct Plan {
    pub clients: Vec<Client>,
    /// Answers that come sooner are not counted.
    pub warm_up: Duration,
    /// How long answers are counted; without it, until every script is at its end.
    pub window: Option<Duration>,
    /// Which status is the one that counts; 2xx, as a rule.
    pub wanted: fn(u16) -> bool,
    /// Whether every request and its answer are kept.
    pub observe: bool,
    /// Where it is to be seen how far the crowd has come.
    pub live: Option<Arc<Live>>,
}

/// One request as its client saw it, on the machine's monotonic clock: it took effect, if at all,
/// between the two times, and without an answer at any time after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Which client, by its place in the plan.
    pub client: usize,
    pub key: Uuid,
    /// What it was about, by its place in the script's list.
    pub subject: usize,
    /// When it was sent.
    pub invoked_us: u64,
    /// What came back; `None` when the connection broke instead.
    pub answer: Option<Answered>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub completed_us: u64,
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub struct Report {
    /// How long answers were counted.
    pub seconds: f64,
    /// Wanted answers that came within the window.
    pub wanted: u64,
    /// Wanted answers, the warm-up's and the stragglers' too.
    pub wanted_in_all: u64,
    /// How long those waited that asked within the window and got what they wanted, in µs.
    pub latency: Histogram<u64>,
    /// `wanted` by client.
    pub by_client: Vec<u64>,
    /// `wanted` by replica.
    pub by_target: Vec<u64>,
    /// All answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests whose connection broke.
    pub lost: u64,
    /// What was asked and answered, if it was to be kept; client by client.
    pub observations: Vec<Observation>,
}

impl Report {
    pub fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.wanted as f64 / self.seconds } else { 0.0 }
    }

    /// A quantile of the latency, in milliseconds; none without answers.
    pub fn latency_ms(&self, quantile: f64) -> Option<f64> {
        let some = !self.latency.is_empty();
        some.then(|| self.latency.value_at_quantile(quantile) as f64 / 1_000.0)
    }
}

/// Jain's index of fairness: 1 when all got the same, 1/n when one got all.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// When answers count, on the machine's monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin_us: u64,
    /// Nobody asks any more from here on.
    end_us: u64,
}

struct Watch {
    wanted: fn(u16) -> bool,
    observe: bool,
    live: Option<Arc<Live>>,
}

#[derive(Debug, Default)]
struct Seen {
    client: usize,
    wanted: u64,
    wanted_in_all: u64,
    latencies_us: Vec<u32>,
    statuses: BTreeMap<u16, u64>,
    lost: u64,
    last_us: u64,
    observations: Vec<Observation>,
}

/// Lets the crowd loose, and waits for the last answer.
pub async fn run(plan: Plan) -> io::Result<Report> {
    let targets: Vec<SocketAddr> = plan.clients.iter().map(|client| client.target).collect();
    let mut dialled = Vec::with_capacity(plan.clients.len());
    for client in plan.clients {
        dialled.push((Connection::open(client.target).await?, client));
    }
    let begin_us = monotonic_us() + micros(plan.warm_up);
    let end_us = plan.window.map_or(u64::MAX, |window| begin_us + micros(window));
    let window = Window { begin_us, end_us };
    let mut crowd = JoinSet::new();
    for (number, (connection, client)) in dialled.into_iter().enumerate() {
        let watch = Watch { wanted: plan.wanted, observe: plan.observe, live: plan.live.clone() };
        crowd.spawn(one(number, connection, client, window, watch));
    }
    let mut seen = Vec::with_capacity(targets.len());
    while let Some(joined) = crowd.join_next().await {
        seen.push(joined.map_err(io::Error::other)?);
    }
    seen.sort_by_key(|seen| seen.client);
    let last_us = seen.iter().map(|seen| seen.last_us).max().unwrap_or(begin_us);
    let until_us = if plan.window.is_some() { end_us } else { last_us };
    Ok(report(seen, &targets, until_us.saturating_sub(begin_us)))
}

pub async fn ask(target: SocketAddr, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut connection = Connection::open(target).await?;
    let status = tokio::time::timeout(PATIENCE, connection.exchange(request)).await??;
    Ok((status, connection.body().to_vec()))
}

async fn one(
    client: usize,
    mut connection: Connection,
    Client { target, mut script }: Client,
    window: Window,
    Watch { wanted, observe, live }: Watch,
) -> Seen {
    let mut seen = Seen { client, ..Seen::default() };
    let mut request = Vec::with_capacity(1 << 10);
    loop {
        if monotonic_us() >= window.end_us {
            return seen;
        }
        let Some(asked) = script.next(&mut request) else { return seen };
        let think = script.think();
        if !think.is_zero() {
            tokio::time::sleep(think).await;
        }
        let invoked_us = monotonic_us();
        if let Some(live) = &live {
            live.sent();
        }
        let answered = tokio::time::timeout(PATIENCE, connection.exchange(&request)).await;
        let status = match answered {
            Ok(Ok(status)) => Some(status),
            Ok(Err(_)) | Err(_) => None,
        };
        let completed_us = monotonic_us();
        if let Some(live) = &live {
            let good = status.is_some_and(wanted);
            live.answered(good.then_some(completed_us - invoked_us));
        }
        seen.count(window, invoked_us, completed_us, status.map(|s| (s, wanted(s))));
        if observe {
            let body = || connection.body().to_vec();
            let answer = status.map(|status| Answered { completed_us, status, body: body() });
            let script::Asked { key, subject } = asked;
            seen.observations.push(Observation { client, key, subject, invoked_us, answer });
        }
        while status.is_none() && monotonic_us() < window.end_us {
            match Connection::open(target).await {
                Ok(opened) => {
                    connection = opened;
                    break;
                }
                Err(_) => tokio::time::sleep(REDIAL).await,
            }
        }
    }
}

impl Seen {
    /// `status` with whether it is the wanted one; `None` for a connection that broke.
    fn count(&mut self, window: Window, from_us: u64, to_us: u64, status: Option<(u16, bool)>) {
        self.last_us = to_us;
        let Some((status, wanted)) = status else {
            self.lost += 1;
            return;
        };
        *self.statuses.entry(status).or_default() += 1;
        if !wanted {
            return;
        }
        self.wanted_in_all += 1;
        if to_us >= window.begin_us && to_us < window.end_us {
            self.wanted += 1;
        }
        if from_us >= window.begin_us {
            self.latencies_us.push(u32::try_from(to_us - from_us).unwrap_or(u32::MAX));
        }
    }
}

fn report(seen: Vec<Seen>, targets: &[SocketAddr], length_us: u64) -> Report {
    let mut report = Report {
        seconds: length_us as f64 / 1e6,
        wanted: 0,
        wanted_in_all: 0,
        latency: histogram(),
        by_client: Vec::new(),
        by_target: Vec::new(),
        statuses: BTreeMap::new(),
        lost: 0,
        observations: Vec::new(),
    };
    let mut by_target: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    for one in seen {
        report.wanted += one.wanted;
        report.wanted_in_all += one.wanted_in_all;
        report.lost += one.lost;
        report.by_client.push(one.wanted);
        if let Some(target) = targets.get(one.client) {
            *by_target.entry(*target).or_default() += one.wanted;
        }
        for (status, count) in one.statuses {
            *report.statuses.entry(status).or_default() += count;
        }
        for latency in one.latencies_us {
            report.latency.saturating_record(u64::from(latency).max(1));
        }
        report.observations.extend(one.observations);
    }
    report.by_target = by_target.into_values().collect();
    report
}

fn histogram() -> Histogram<u64> {
    // Bounds that are known to be fine; without bounds it would grow as needed.
    Histogram::new_with_bounds(1, LONGEST_US, 3)
        .unwrap_or_else(|_| unreachable!("1 µs to a minute, three digits"))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_says_how_evenly_it_was_shared() {
        assert!((jain(&[7, 7, 7]) - 1.0).abs() < 1e-9);
        assert!((jain(&[9, 0, 0]) - 1.0 / 3.0).abs() < 1e-9);
        assert!((jain(&[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn only_wanted_answers_within_the_window_count() {
        let window = Window { begin_us: 100, end_us: 200 };
        let mut seen = Seen::default();
        seen.count(window, 50, 90, Some((201, true))); // too soon
        seen.count(window, 90, 110, Some((201, true))); // counts, asked before: no latency
        seen.count(window, 110, 140, Some((201, true)));
        seen.count(window, 140, 150, Some((503, false)));
        seen.count(window, 150, 160, None);
        seen.count(window, 160, 250, Some((201, true))); // too late, but it waited that long
        let report = report(vec![seen], &["127.0.0.1:1".parse().expect("an address")], 100);
        assert_eq!((report.wanted, report.wanted_in_all, report.lost), (2, 4, 1));
        assert_eq!(report.statuses, BTreeMap::from([(201, 4), (503, 1)]));
        assert_eq!((report.latency.len(), report.latency.max()), (2, 90));
    }
}
