//! Work above a millisecond, off the workers: to read and draw what a visitor's file or a stored
//! run makes long. A worker serves many other connections.
//!
//! Guarantee: at most half the cores do it, in order of arrival. Tests: below.

use std::num::NonZero;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::problems::Problem;

/// Works at a time: half the cores, so that orders have the others.
static RUNNING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(max_running()));

fn max_running() -> usize {
    let cores = available_parallelism().map_or(1, NonZero::get);
    (cores / 2).max(1)
}

/// Runs work on a thread of its own, once fewer than [`max_running`] others run.
pub(crate) async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let permit = RUNNING.acquire().await;
    // The permit moves into the task: work whose request has been cancelled still takes a core.
    let task = spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    task.await.map_err(|error| {
        tracing::error!(%error, "work off the workers failed");
        Problem::undrawn_page()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use parking_lot::Mutex;

    use super::*;

    /// On a runtime with one thread, which goes on: work elsewhere waits at its gate.
    #[tokio::test]
    async fn few_works_run_and_none_on_the_worker() {
        let worker = thread::current().id();
        let (started, starts) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));

        let count = max_running() + 3;
        let works = (0..count).map(|_| {
            let (started, gate) = (started.clone(), Arc::clone(&gate));
            tokio::spawn(offload(move || {
                started.send(thread::current().id()).unwrap();
                gate.lock().recv().unwrap();
            }))
        });
        let works: Vec<_> = works.collect();

        let mut ran = Vec::new();
        while ran.len() < max_running() {
            tokio::task::yield_now().await;
            ran.extend(starts.try_recv());
        }
        assert_eq!(RUNNING.available_permits(), 0);
        assert!(starts.try_recv().is_err(), "more than half the cores are busy");
        assert!(!ran.contains(&worker), "{ran:?}");

        (0..count).for_each(|_| open.send(()).unwrap());
        for work in works {
            work.await.unwrap().unwrap();
        }
        assert_eq!(RUNNING.available_permits(), max_running());
    }
}
