//! The spans of a command: `wait` until its locks are acquired, `held` until its response, and in
//! the latter `read`, `decide` and `write`.
//!
//! They are children of the request's span, also in a batch, whose own span links to the requests
//! and is linked from each `held`. So the trace of one request shows all its steps.
//! Test: `tests/it/traces.rs`.

use std::fmt::{self, Display, Formatter};

use holdfast_lock::LockKey;
use tracing::{Span, debug_span, error_span};

use super::batch::Batch;
use super::queue::QueueEntry;

/// The span of a request, and that of the stage in which its command is.
#[derive(Debug)]
pub(super) struct CommandSpan {
    request: Span,
    stage: Span,
}

impl CommandSpan {
    /// Begins to wait, in the current span.
    pub fn waiting() -> Self {
        Self { request: Span::current(), stage: debug_span!("wait") }
    }

    pub fn stage(&self) -> &Span {
        &self.stage
    }
}

/// Begins the span of a batch, and ends the wait of its entries.
pub(super) fn begin_batch(key: &LockKey, entries: &mut [QueueEntry]) -> Span {
    let requests = RequestIds(entries);
    let batch = error_span!(parent: None, "batch", %key, commands = entries.len(), %requests);
    for entry in entries {
        let CommandSpan { request, stage } = &mut entry.span;
        batch.follows_from(&*request);
        *stage = debug_span!(parent: &*request, "held");
        stage.follows_from(&batch);
    }
    batch
}

/// Runs a step of a batch, in a span per command.
pub(super) async fn traced<T>(
    batch: Batch<'_>,
    span_below: impl Fn(&Span) -> Span,
    step: impl Future<Output = T>,
) -> T {
    let spans = batch.entries.iter().map(|entry| span_below(entry.stage));
    let spans: Vec<Span> = spans.filter(|span| !span.is_disabled()).collect();
    let done = step.await;
    drop(spans);
    done
}

/// The ids of the requests of a batch, in order.
struct RequestIds<'a>(&'a [QueueEntry]);

impl Display for RequestIds<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { " " };
            write!(f, "{separator}{}", entry.options.request_id)?;
        }
        Ok(())
    }
}
