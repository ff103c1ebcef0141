//! The border between the server's workers and the program.
//!
//! Each worker of actix is a thread with a runtime of its own, which ends with the server. What a
//! request opens for others must not end with it: a connection to Postgres or Redis belongs to the
//! runtime that opened it. So a worker polls and drops its connections, with their requests and
//! streams of events, in the context of the program's runtime: sockets, timers and tasks below are
//! created there, and nothing below `web` knows that there are workers.
//!
//! A task of the worker itself (`actix_web::rt::spawn`) would panic here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// The program's runtime, for workers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Border {
    runtime: Handle,
    is_closed: Arc<AtomicBool>,
}

/// Closes the border on drop.
#[derive(Debug)]
pub struct BorderGuard(Border);

impl Border {
    /// Opens the border of the current runtime, which must be closed before the runtime ends.
    pub fn open() -> (Self, BorderGuard) {
        let border = Self { runtime: Handle::current(), is_closed: Arc::default() };
        (border.clone(), BorderGuard(border))
    }

    /// Runs the work of a worker in the context of the program's runtime; `None` if the border is
    /// closed first.
    pub fn run<F: Future>(&self, work: F) -> Crossing<F> {
        Crossing { border: self.clone(), work: Some(Box::pin(work)) }
    }
}

impl Drop for BorderGuard {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
    }
}

/// The work of a worker, which enters the program's runtime whenever it is polled, and when it is
/// dropped: guards in it spawn their releases.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Crossing<F> {
    border: Border,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Crossing<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // A runtime that ends wakes all who wait for its timers, which panic when they are polled.
        if this.border.is_closed.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }

        let _entered = this.border.runtime.enter();
        match &mut this.work {
            Some(work) => work.as_mut().poll(cx).map(Some),
            None => Poll::Ready(None),
        }
    }
}

impl<F> Drop for Crossing<F> {
    fn drop(&mut self) {
        let _entered = self.border.runtime.enter();
        self.work = None;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::runtime::{Builder, Id};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Reports the runtime in which it is dropped.
    struct DropReporter(UnboundedSender<Id>);

    impl Drop for DropReporter {
        fn drop(&mut self) {
            let _ = self.0.send(Handle::current().id());
        }
    }

    /// Runs a worker to its end: a thread with a runtime of its own, and without timers.
    async fn run_worker<F: Future>(work: impl FnOnce() -> F + Send + 'static) -> F::Output
    where
        F::Output: Send + 'static,
    {
        let worker = move || Builder::new_current_thread().build().unwrap().block_on(work());
        tokio::task::spawn_blocking(worker).await.unwrap()
    }

    #[tokio::test]
    async fn what_a_worker_begins_outlives_it() {
        let (border, _open) = Border::open();
        let (sender, ran_in) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let worker = run_worker(move || {
            border.run(async {
                // A timer, which the worker's runtime does not have.
                sleep(Duration::from_millis(1)).await;
                tokio::spawn(async {
                    let _ = ended.await;
                    let _ = sender.send(Handle::current().id());
                });
            })
        });
        assert_eq!(worker.await, Some(()), "the border is open");
        drop(end);
        assert_eq!(ran_in.await.unwrap(), Handle::current().id());
    }

    #[tokio::test]
    async fn cancelled_work_is_dropped_in_the_programs_runtime() {
        let (border, _open) = Border::open();
        let (sender, mut dropped) = unbounded_channel();
        run_worker(move || async move {
            let guard = DropReporter(sender);
            let work = async move {
                let _guard = guard;
                pending::<()>().await;
            };
            let mut crossing = Box::pin(border.run(work));
            assert!(futures_util::poll!(&mut crossing).is_pending());
        })
        .await;
        assert_eq!(dropped.recv().await, Some(Handle::current().id()));
    }

    #[tokio::test]
    async fn closed_border_ends_its_work() {
        let (border, open) = Border::open();
        let mut crossing = Box::pin(border.run(sleep(Duration::from_mins(1))));
        assert!(futures_util::poll!(&mut crossing).is_pending());
        drop(open);
        assert_eq!(timeout(Duration::from_secs(1), crossing).await, Ok(None));
    }
}
