//! Why a judgement can't go on. It travels from a worker to the judge, and the course says some of
//! it in its own words.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JudgeFailure {
    pub kind: FailureKind,
    /// In the judge's words, without a full stop.
    pub why: String,
    /// The end of the adapter's stderr, of a failure that it may explain.
    pub last_words: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// A request has no answer in time.
    NotAnswered {
        operation: String,
    },
    /// The adapter has exited; without a code, a signal ended it.
    Exited {
        code: Option<i32>,
    },
    /// Each request for the lock was answered, and none with a grant.
    NoGrant,
    Other,
}

impl JudgeFailure {
    pub fn new(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), last_words: None }
    }

    pub fn other(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Other, why)
    }
}

impl From<anyhow::Error> for JudgeFailure {
    fn from(error: anyhow::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self::other(format!("{error:#}")))
    }
}

impl fmt::Display for JudgeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        match self.last_words.as_deref() {
            None => Ok(()),
            Some([]) => write!(f, ". Its stderr is empty"),
            Some(lines) => write!(f, ". The end of its stderr:\n  {}", lines.join("\n  ")),
        }
    }
}

impl std::error::Error for JudgeFailure {}
