//! One command of a batch, its result, and how an attempt at a batch fails.

use std::sync::Arc;

use holdfast_lock::LockKey;
use tracing::Span;

use crate::RequestContext;
use crate::command::Command;
use crate::failure::{Error, Execution, Failure};
use crate::store::BatchWrite;

// Borrowed: a queue and a single command keep these in different ways.
#[derive(Debug, Clone, Copy)]
pub struct BatchEntry<'a> {
    pub command: &'a dyn Command,
    pub context: &'a RequestContext,
    /// The span `held` of the command, from the acquisition of its locks until its response. The
    /// steps `read`, `decide` and `write` are below it. Test: `tests/it/traces.rs`.
    pub stage: &'a Span,
}

pub type EntryResult = Result<Execution, Failure>;

pub enum AttemptError {
    /// Nothing was written; or rejected, by a rule that only the write could check.
    Failed(Failure),
    /// The rows with higher fences than their locks: their keys and fences.
    StaleFences(Vec<(LockKey, i64)>),
    /// The write was sent, and its result did not arrive. With the result of each command if the
    /// write is done.
    UnknownOutcome(Error, Arc<BatchWrite>, Vec<EntryResult>),
}

impl<E: Into<Failure>> From<E> for AttemptError {
    fn from(failure: E) -> Self {
        AttemptError::Failed(failure.into())
    }
}
