//! Histories of many clients in several processes: holds never overlap, and fences grow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_lock::clock::monotonic_us;

use tokio::sync::watch;

use crate::server::{Process, Server, each_topology, fence, until};

each_topology!(
    three_processes_exclude_with_growing_fences,
    random_cancellations_never_block_the_queue,
);

/// Time for which a client holds the lock: enough for a second holder, if exclusion failed.
const HOLD: Duration = Duration::from_millis(1);

/// Detects holders that hold at the same time.
#[derive(Debug, Default)]
pub struct Rendezvous(watch::Sender<usize>);

impl Rendezvous {
    /// Waits for another holder, at most for `window`. Returns whether there was one.
    pub async fn overlaps(&self, window: Duration) -> bool {
        let mut inside = self.0.subscribe();
        self.0.send_modify(|inside| *inside += 1);
        let overlapped =
            tokio::time::timeout(window, inside.wait_for(|inside| *inside > 1)).await.is_ok();
        self.0.send_modify(|inside| *inside -= 1);
        overlapped
    }
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    from_us: u64,
    to_us: u64,
    fence: i64,
}

type History = Arc<Mutex<Vec<Hold>>>;

async fn client(process: Process, history: History, times: usize) {
    for _ in 0..times {
        let guards = process.lock("{hot}").await;
        let (from_us, fence) = (monotonic_us(), fence(&guards, "{hot}"));
        tokio::time::sleep(HOLD).await;
        history.lock().unwrap().push(Hold { from_us, to_us: monotonic_us(), fence });
        guards.release().await;
    }
}

/// Asserts that holds do not overlap, and that each has a larger fence than the one before.
fn assert_exclusive(history: &History) {
    let mut holds = history.lock().unwrap().clone();
    holds.sort_by_key(|hold| hold.from_us);
    for pair in holds.windows(2) {
        assert!(pair[0].to_us <= pair[1].from_us, "two holders at once: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "a fence did not grow: {pair:?}");
    }
}

async fn three_processes_exclude_with_growing_fences(server: &Server) {
    let history = History::default();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let process = server.process();
        for _ in 0..8 {
            clients.spawn(client(process.clone(), history.clone(), 20));
        }
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(history.lock().unwrap().len(), 3 * 8 * 20);
    assert_exclusive(&history);
    until("nothing is left behind", async || server.keys_left().is_empty()).await;
}

async fn random_cancellations_never_block_the_queue(server: &Server) {
    let history = History::default();
    let processes = [server.process(), server.process()];
    let mut clients = tokio::task::JoinSet::new();
    for process in &processes {
        clients.spawn(client(process.clone(), history.clone(), 150));
        for n in 0..6_u64 {
            let process = process.clone();
            clients.spawn(async move {
                for round in 0..60_u64 {
                    // Dropped after some microseconds, at any await point.
                    let timeout = Duration::from_micros((n * 997 + round * 331) % 2_500);
                    let acquiring = process.lock("{hot}");
                    let _ = tokio::time::timeout(timeout, acquiring).await;
                }
            });
        }
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(history.lock().unwrap().len(), 2 * 150);
    assert_exclusive(&history);
    until("nothing is left behind", async || server.keys_left().is_empty()).await;
}
