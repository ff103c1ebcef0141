//! The spans of a command: `wait` until its locks are acquired, `held` until its response, and in
//! the latter `read`, `decide` and `write`: children of the request's span, also in a batch, whose
//! own span links to the requests. Test: `tests/it/traces.rs`.

use tracing::{Span, debug_span};

#[derive(Debug)]
pub(super) struct CommandSpan {
    request: Span,
    stage: Span,
}

impl CommandSpan {
    pub fn waiting() -> Self {
        Self { request: Span::current(), stage: debug_span!("wait") }
    }

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
