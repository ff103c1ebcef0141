//! The spans of a command: `wait` until its locks are acquired, `held` until its response, and in
//! the latter `read`, `decide` and `write`.
//!
//! They are children of the request's span, also in a batch, whose own span links to the requests
//! and is linked from each `held`. So the trace of one request shows all its steps.
//! Test: `tests/it/traces.rs`.

use tracing::{Span, debug_span};

/// The span of a request, and that of the stage in which its command is.
#[derive(Debug)]
pub(super) struct CommandSpan {
    request: Span,
    stage: Span,
}

impl CommandSpan {
    /// Begins the stage `wait`, in the current span.
    pub fn waiting() -> Self {
        Self { request: Span::current(), stage: debug_span!("wait") }
    }

    /// Ends the wait, and begins the stage `held` in a batch.
    pub fn begin_held(&mut self, batch: &Span) {
        batch.follows_from(&self.request);
        self.stage = debug_span!(parent: &self.request, "held");
        self.stage.follows_from(batch);
    }

    pub fn stage(&self) -> &Span {
        &self.stage
    }
}

/// Begins a step of commands: a span below the stage of each, until the result is dropped.
pub(super) fn begin_step<'s>(
    stages: impl Iterator<Item = &'s Span>,
    span_below: impl Fn(&Span) -> Span,
) -> Vec<Span> {
    stages.map(span_below).filter(|span| !span.is_disabled()).collect()
}
