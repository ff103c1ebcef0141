//! Futures that are dropped at a chosen await point.
//!
//! A test drops its future after no poll, after one, after two, … until one run completes: then it
//! has been dropped at each of its await points.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// More polls than any future of the tests takes.
const MAX_POLLS: usize = 500;

/// Where a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As soon as it is pending after this number of polls.
    AtOnce(usize),
    /// When it is woken after this number of polls: the awaited result is ready, and is dropped.
    WhenWoken(usize),
}

impl Cut {
    /// Both, after 0, 1, 2, … polls.
    pub fn all() -> impl Iterator<Item = Cut> {
        (0..MAX_POLLS).flat_map(|polls| [Cut::AtOnce(polls), Cut::WhenWoken(polls)])
    }

    /// The output of the future, or `None` if it was dropped. Counts its polls in `polls`.
    pub async fn run<F: Future>(self, polls: &AtomicUsize, future: F) -> Option<F::Output> {
        let mut future = Box::pin(future);
        let end = poll_fn(move |context| {
            let before = polls.load(Ordering::SeqCst);
            if matches!(self, Cut::AtOnce(max) | Cut::WhenWoken(max) if before == max) {
                return Poll::Ready(None);
            }
            let polled = future.as_mut().poll(context);
            polls.store(before + 1, Ordering::SeqCst);
            match polled {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if self == Cut::AtOnce(before + 1) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        // The future is dropped with the closure it is in, here.
        end.await
    }
}
