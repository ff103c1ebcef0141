//! One command of a batch, its result and its spans.

use tracing::{Span, debug_span};

use crate::shop::RequestOptions;
use crate::shop::command::Command;
use crate::shop::failure::{Execution, Failure};

#[derive(Debug, Clone, Copy)]
pub(super) struct BatchEntry<'a> {
    pub(super) command: &'a dyn Command,
    pub(super) options: &'a RequestOptions,
    pub(super) stage: &'a Span,
}

pub(super) type EntryResult = Result<Execution, Failure>;

/// The spans of a command: `wait` until its locks are acquired, `held` until its response, and in
/// the latter `read`, `decide` and `write`: children of the request's span, also in a batch, whose
/// own span links to the requests. Test: `tests/it/traces.rs`.
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
