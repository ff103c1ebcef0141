//! Futures that are dropped at an await point of one's choice.
//!
//! A test drops its future after no poll, after one, after two, … until one run comes to its end:
//! then every await point that there is was one to be dropped at, however many there are.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// More polls than any future here takes: it would wake itself for ever.
const MOST: usize = 500;

/// Where a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As soon as it waits after so many polls.
    AtOnce(usize),
    /// When it is woken after so many polls: what it has waited for is there, and nobody takes it.
    WhenWoken(usize),
}

impl Cut {
    /// Both, after 0, 1, 2, … polls.
    pub fn all() -> impl Iterator<Item = Cut> {
        (0..MOST).flat_map(|polls| [Cut::AtOnce(polls), Cut::WhenWoken(polls)])
    }

    /// What comes of the future, or nothing if it was dropped. Counts its polls in `polls`.
    pub async fn run<F: Future>(self, polls: &AtomicUsize, future: F) -> Option<F::Output> {
        let mut future = Box::pin(future);
        let end = poll_fn(move |context| {
            let before = polls.load(Ordering::SeqCst);
            if matches!(self, Cut::AtOnce(most) | Cut::WhenWoken(most) if before == most) {
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
