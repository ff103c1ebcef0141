//! Closed-loop HTTP load: each client has a connection of its own and sends its next request after
//! the response to the last one.
//!
//! The load runs on the cores of the server under test, so it does little per request: a request is
//! prebuilt bytes with a new idempotency key, and only status and length of a response are parsed.
//! [`LoadPlan::observe`] keeps every request and response with its times.
//!
//! This is not an open loop: a client that waits long sends fewer requests, so a latency belongs to
//! a number of clients, not to a request rate.

mod connection;
mod live;
mod script;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use connection::HttpConnection;
use holdfast_lock::clock::monotonic_us;
use live::histogram;
pub use live::{LiveCounters, LiveSnapshot};
pub use script::Posts;

/// Pause after a failed attempt to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);
/// Timeout of a request; the server's own is shorter.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct LoadClient {
    pub target: SocketAddr,
    pub script: Posts,
}

#[derive(Debug)]
pub struct LoadPlan {
    pub clients: Vec<LoadClient>,
    /// Time before responses are counted.
    pub warm_up: Duration,
    /// Time during which responses are counted; `None` for until all scripts have ended.
    pub window: Option<Duration>,
    /// Predicate for the statuses that count; usually 2xx.
    pub expected: fn(u16) -> bool,
    /// True if every request is kept with its response.
    pub observe: bool,
    /// Progress counters to update.
    pub live: Option<Arc<LiveCounters>>,
}

/// One request as its client saw it, with times of the machine's monotonic clock. It took effect,
/// if at all, between the two times; without a response, at any time after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Index of the client in the plan.
    pub client: usize,
    pub key: Uuid,
    pub invoked_us: u64,
    /// The response; `None` if the connection broke or the request timed out.
    pub response: Option<ResponseRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRecord {
    pub completed_us: u64,
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub struct LoadReport {
    /// Time during which responses were counted.
    pub seconds: f64,
    /// Expected responses within the window.
    pub expected: u64,
    /// Expected responses, including those before and after the window.
    pub expected_total: u64,
    /// Latency of expected responses to requests sent within the window, in µs.
    pub latency: Histogram<u64>,
    /// `expected` by client.
    pub by_client: Vec<u64>,
    /// `expected` by replica.
    pub by_target: Vec<u64>,
    /// All responses, by status.
    pub statuses: BTreeMap<u16, u64>,
    pub lost: u64,
    pub observations: Vec<RequestRecord>,
}

impl LoadReport {
    pub fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.expected as f64 / self.seconds } else { 0.0 }
    }

    /// Returns a quantile of the latency in milliseconds; `None` without responses.
    pub fn latency_ms(&self, quantile: f64) -> Option<f64> {
        let responses = !self.latency.is_empty();
        responses.then(|| self.latency.value_at_quantile(quantile) as f64 / 1_000.0)
    }
}

/// What a client counts and records of its requests, as in the plan. The window in which responses
/// count is on the machine's monotonic clock.
#[derive(Debug, Clone)]
struct Recording {
    begin_us: u64,
    /// No request is sent from then on.
    end_us: u64,
    expected: fn(u16) -> bool,
    observe: bool,
    live: Option<Arc<LiveCounters>>,
}

#[derive(Debug, Default)]
struct ClientStats {
    client: usize,
    expected: u64,
    expected_total: u64,
    latencies_us: Vec<u32>,
    statuses: BTreeMap<u16, u64>,
    lost: u64,
    last_us: u64,
    observations: Vec<RequestRecord>,
}

/// Connects all clients, runs their scripts and waits for the last response.
pub async fn run(plan: LoadPlan) -> io::Result<LoadReport> {
    let targets: Vec<SocketAddr> = plan.clients.iter().map(|client| client.target).collect();
    let mut connected = Vec::with_capacity(plan.clients.len());
    for client in plan.clients {
        connected.push((HttpConnection::open(client.target).await?, client));
    }
    let begin_us = monotonic_us() + micros(plan.warm_up);
    let end_us = plan.window.map_or(u64::MAX, |window| begin_us + micros(window));
    let LoadPlan { expected, observe, live, .. } = plan;
    let recording = Recording { begin_us, end_us, expected, observe, live };
    let mut clients = JoinSet::new();
    for (number, (connection, client)) in connected.into_iter().enumerate() {
        clients.spawn(run_client(number, connection, client, recording.clone()));
    }
    let mut stats = Vec::with_capacity(targets.len());
    while let Some(joined) = clients.join_next().await {
        stats.push(joined.map_err(io::Error::other)?);
    }
    stats.sort_by_key(|stats| stats.client);
    let last_us = stats.iter().map(|stats| stats.last_us).max().unwrap_or(begin_us);
    let until_us = if plan.window.is_some() { end_us } else { last_us };
    Ok(report(stats, &targets, until_us.saturating_sub(begin_us)))
}

pub async fn send(target: SocketAddr, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut connection = HttpConnection::open(target).await?;
    let status = timeout(REQUEST_TIMEOUT, connection.exchange(request)).await??;
    Ok((status, connection.body().to_vec()))
}

async fn run_client(
    client: usize,
    mut connection: HttpConnection,
    LoadClient { target, mut script }: LoadClient,
    recording: Recording,
) -> ClientStats {
    let mut stats = ClientStats { client, ..ClientStats::default() };
    let mut request = Vec::with_capacity(1 << 10);
    loop {
        if monotonic_us() >= recording.end_us {
            return stats;
        }
        let Some(key) = script.next(&mut request) else { return stats };
        let think_time = script.think_time();
        if !think_time.is_zero() {
            sleep(think_time).await;
        }
        let invoked_us = monotonic_us();
        if let Some(live) = &recording.live {
            live.record_request();
        }
        let exchanged = timeout(REQUEST_TIMEOUT, connection.exchange(&request)).await;
        let status = exchanged.ok().and_then(Result::ok);
        let completed_us = monotonic_us();
        if let Some(live) = &recording.live {
            let is_expected = status.is_some_and(recording.expected);
            live.record_completion(is_expected.then_some(completed_us - invoked_us));
        }
        stats.count(&recording, invoked_us, completed_us, status);
        if recording.observe {
            let body = || connection.body().to_vec();
            let response =
                status.map(|status| ResponseRecord { completed_us, status, body: body() });
            stats.observations.push(RequestRecord { client, key, invoked_us, response });
        }
        while status.is_none() && monotonic_us() < recording.end_us {
            match HttpConnection::open(target).await {
                Ok(opened) => {
                    connection = opened;
                    break;
                }
                Err(_) => sleep(RECONNECT_DELAY).await,
            }
        }
    }
}

impl ClientStats {
    /// Counts a request; `status` is `None` without a response.
    fn count(&mut self, recording: &Recording, from_us: u64, to_us: u64, status: Option<u16>) {
        self.last_us = to_us;
        let Some(status) = status else {
            self.lost += 1;
            return;
        };
        *self.statuses.entry(status).or_default() += 1;
        if !(recording.expected)(status) {
            return;
        }
        self.expected_total += 1;
        if (recording.begin_us..recording.end_us).contains(&to_us) {
            self.expected += 1;
        }
        if from_us >= recording.begin_us {
            self.latencies_us.push(u32::try_from(to_us - from_us).unwrap_or(u32::MAX));
        }
    }
}

fn report(stats: Vec<ClientStats>, targets: &[SocketAddr], length_us: u64) -> LoadReport {
    let mut report = LoadReport {
        seconds: length_us as f64 / 1e6,
        expected: 0,
        expected_total: 0,
        latency: histogram(),
        by_client: Vec::new(),
        by_target: Vec::new(),
        statuses: BTreeMap::new(),
        lost: 0,
        observations: Vec::new(),
    };
    let mut by_target: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    for one in stats {
        report.expected += one.expected;
        report.expected_total += one.expected_total;
        report.lost += one.lost;
        report.by_client.push(one.expected);
        if let Some(target) = targets.get(one.client) {
            *by_target.entry(*target).or_default() += one.expected;
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

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wanted_responses_in_window_count() {
        let expected = |status| status == 201;
        let recording =
            Recording { begin_us: 100, end_us: 200, expected, observe: false, live: None };
        let mut stats = ClientStats::default();
        stats.count(&recording, 50, 90, Some(201)); // before the window
        stats.count(&recording, 90, 110, Some(201)); // counts, without a latency
        stats.count(&recording, 110, 140, Some(201));
        stats.count(&recording, 140, 150, Some(503));
        stats.count(&recording, 150, 160, None);
        stats.count(&recording, 160, 250, Some(201)); // after the window: latency only
        let report = report(vec![stats], &["127.0.0.1:1".parse().expect("an address")], 100);
        assert_eq!((report.expected, report.expected_total, report.lost), (2, 4, 1));
        assert_eq!(report.statuses, BTreeMap::from([(201, 4), (503, 1)]));
        assert_eq!((report.latency.len(), report.latency.max()), (2, 90));
    }
}
