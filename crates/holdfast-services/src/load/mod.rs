//! Closed-loop HTTP load: each client has connections of its own, mostly one, and sends its next
//! request after the response to the last one.
//!
//! The load runs on the cores of the server under test, so it does little per request: a request is
//! prebuilt bytes with a new idempotency key, and only status and length of a response are parsed.
//! A client that waits long sends fewer requests, so a latency belongs to a number of clients, not
//! to a request rate.

mod connection;
mod script;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use connection::HttpConnection;
use holdfast_lock::clock::monotonic_us;
pub use script::{PLACED_ORDER, Posts};

const RECONNECT_DELAY: Duration = Duration::from_millis(20);
/// Timeout of a request; the server's own is shorter.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_LATENCY_US: u64 = 60_000_000;

#[derive(Debug)]
pub struct LoadClient {
    /// It sends each request to the next of them, over a connection of its own.
    pub targets: Vec<SocketAddr>,
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
    /// The report to update while the load runs.
    pub live: Option<Arc<Mutex<LoadReport>>>,
}

impl LoadPlan {
    /// Counts all expected responses, until all scripts have ended.
    pub fn new(clients: Vec<LoadClient>, expected: fn(u16) -> bool) -> Self {
        let warm_up = Duration::ZERO;
        Self { clients, warm_up, window: None, expected, observe: false, live: None }
    }
}

/// One request as its client saw it, with times of the machine's monotonic clock. It took effect,
/// if at all, between the two times; without a response, at any time after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
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
    pub seconds: f64,
    pub sent: u64,
    /// Expected responses within the window.
    pub expected: u64,
    /// Expected responses, including those before and after the window.
    pub expected_total: u64,
    /// Latency of expected responses to requests sent within the window, in µs.
    pub latency: Histogram<u64>,
    pub by_client: Vec<u64>,
    pub by_target: BTreeMap<SocketAddr, u64>,
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without a response: their connection broke, or they timed out.
    pub lost: u64,
    pub observations: Vec<RequestRecord>,
    last_us: u64,
}

impl Default for LoadReport {
    fn default() -> Self {
        // With bounds, the histogram does not grow; these bounds are valid.
        let latency = Histogram::new_with_bounds(1, MAX_LATENCY_US, 3)
            .unwrap_or_else(|_| unreachable!("1 µs to a minute, three digits"));
        Self {
            seconds: 0.0,
            sent: 0,
            expected: 0,
            expected_total: 0,
            latency,
            by_client: Vec::new(),
            by_target: BTreeMap::new(),
            statuses: BTreeMap::new(),
            lost: 0,
            observations: Vec::new(),
            last_us: 0,
        }
    }
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

    pub fn completed(&self) -> u64 {
        self.statuses.values().sum::<u64>() + self.lost
    }
}

/// The responses that are counted and recorded, as in the plan. The window in which they count is
/// on the machine's monotonic clock.
#[derive(Debug, Clone)]
struct LoadWindow {
    begin_us: u64,
    /// No request is sent from then on.
    end_us: u64,
    expected: fn(u16) -> bool,
    observe: bool,
    report: Arc<Mutex<LoadReport>>,
}

/// Connects all clients, runs their scripts and waits for the last response.
pub async fn run(plan: LoadPlan) -> io::Result<LoadReport> {
    let LoadPlan { clients, warm_up, window, expected, observe, live } = plan;
    let report = live.unwrap_or_default();
    report.lock().by_client = vec![0; clients.len()];
    let targets = clients.iter().flat_map(|client| &client.targets);
    report.lock().by_target = targets.map(|target| (*target, 0)).collect();

    // All are connected before the first request: connecting is no part of the load.
    let mut connected = Vec::with_capacity(clients.len());
    for LoadClient { targets, script } in clients {
        let mut connections = Vec::with_capacity(targets.len());
        for target in targets {
            connections.push((target, HttpConnection::open(target).await?));
        }
        connected.push((connections, script));
    }

    let begin_us = monotonic_us() + micros(warm_up);
    let end_us = window.map_or(u64::MAX, |window| begin_us + micros(window));
    let recording = LoadWindow { begin_us, end_us, expected, observe, report };

    let mut running = JoinSet::new();
    for (number, (connections, script)) in connected.into_iter().enumerate() {
        running.spawn(run_client(number, connections, script, recording.clone()));
    }
    while let Some(joined) = running.join_next().await {
        joined.map_err(io::Error::other)?;
    }

    let mut report = std::mem::take(&mut *recording.report.lock());
    let until_us = if window.is_some() { end_us } else { report.last_us };
    report.seconds = until_us.saturating_sub(begin_us) as f64 / 1e6;
    Ok(report)
}

pub async fn send(target: SocketAddr, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut connection = HttpConnection::open(target).await?;
    let status = timeout(REQUEST_TIMEOUT, connection.exchange(request)).await??;
    Ok((status, connection.body().to_vec()))
}

async fn run_client(
    client: usize,
    mut connections: Vec<(SocketAddr, HttpConnection)>,
    mut script: Posts,
    recording: LoadWindow,
) {
    let mut request = Vec::with_capacity(1 << 10);
    while monotonic_us() < recording.end_us {
        let Some((target, connection)) = connections.first_mut() else { return };
        let target = *target;
        let Some(key) = script.next(&mut request) else { return };
        let think_time = script.think_time();
        if !think_time.is_zero() {
            sleep(think_time).await;
        }

        recording.report.lock().sent += 1;
        let invoked_us = monotonic_us();
        let exchanged = timeout(REQUEST_TIMEOUT, connection.exchange(&request)).await;
        let status = exchanged.ok().and_then(Result::ok);
        let completed_us = monotonic_us();
        recording.count((client, target), invoked_us, completed_us, status);
        if status == Some(201) {
            script.note_created(connection.body());
        }

        if recording.observe {
            let response = status.map(|status| ResponseRecord {
                completed_us,
                status,
                body: connection.body().to_vec(),
            });
            let record = RequestRecord { client, key, invoked_us, response };
            recording.report.lock().observations.push(record);
        }

        // Also after a timeout: the late response would be taken for that to the next request.
        while status.is_none() && monotonic_us() < recording.end_us {
            match HttpConnection::open(target).await {
                Ok(opened) => {
                    *connection = opened;
                    break;
                }
                Err(_) => sleep(RECONNECT_DELAY).await,
            }
        }
        connections.rotate_left(1);
    }
}

impl LoadWindow {
    /// Counts a request; `status` is `None` without a response.
    fn count(
        &self,
        (client, target): (usize, SocketAddr),
        from_us: u64,
        to_us: u64,
        status: Option<u16>,
    ) {
        let mut report = self.report.lock();
        report.last_us = to_us.max(report.last_us);
        let Some(status) = status else {
            report.lost += 1;
            return;
        };

        *report.statuses.entry(status).or_default() += 1;
        if !(self.expected)(status) {
            return;
        }

        report.expected_total += 1;
        if (self.begin_us..self.end_us).contains(&to_us) {
            report.expected += 1;
            report.by_client[client] += 1;
            *report.by_target.entry(target).or_default() += 1;
        }
        // Also after the window, where the responses to slow requests arrive.
        if from_us >= self.begin_us {
            report.latency.saturating_record((to_us - from_us).max(1));
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wanted_responses_in_window_count() {
        let target = "127.0.0.1:1".parse().expect("an address");
        let report: Arc<Mutex<LoadReport>> = Arc::default();
        report.lock().by_client = vec![0];
        let expected = |status| status == 201;
        let recording = LoadWindow { begin_us: 100, end_us: 200, expected, observe: false, report };
        let count = |from_us, to_us, status| recording.count((0, target), from_us, to_us, status);
        count(50, 90, Some(201)); // before the window
        count(90, 110, Some(201)); // counts, without a latency
        count(110, 140, Some(201));
        count(140, 150, Some(503));
        count(150, 160, None);
        count(160, 250, Some(201)); // after the window: latency only
        let report = recording.report.lock();
        assert_eq!((report.expected, report.expected_total, report.lost), (2, 4, 1));
        assert_eq!(report.statuses, BTreeMap::from([(201, 4), (503, 1)]));
        assert_eq!((report.latency.len(), report.latency.max()), (2, 90));
    }
}
