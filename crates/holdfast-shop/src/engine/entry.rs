//! One command of a batch, and its result.

use tracing::Span;

use crate::RequestOptions;
use crate::command::Command;
use crate::failure::{Execution, Failure};

// Borrowed: a queue and a single command keep these in different ways.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchEntry<'a> {
    pub(super) command: &'a dyn Command,
    pub(super) options: &'a RequestOptions,
    /// The span `held` of the command, from the acquisition of its locks until its response. The
    /// steps `read`, `decide` and `write` are below it. Test: `tests/it/traces.rs`.
    pub(super) stage: &'a Span,
}

pub(super) type EntryResult = Result<Execution, Failure>;
