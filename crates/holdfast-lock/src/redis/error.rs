//! Errors of the client.

use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

/// A command failed, or its response did not arrive in time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Error(Arc<RedisError>);

impl Error {
    pub(crate) fn new(error: RedisError) -> Self {
        Self(Arc::new(error))
    }

    /// Creates the error of a server that did not respond in time.
    pub(crate) fn timed_out() -> Self {
        Self::new(super::request::timed_out())
    }

    /// Creates the error of a response that does not have the expected form.
    #[must_use]
    pub fn unexpected_response(cause: impl fmt::Display) -> Self {
        let error = (ErrorKind::UnexpectedReturnType, "unexpected response", cause.to_string());
        Self::new(error.into())
    }

    /// Returns the code of an error that the server reported, e.g. `WRONGTYPE`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code()
    }

    /// Returns whether the server did not respond in time. The command may have been executed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.is_timeout()
    }

    /// Returns whether the connection failed. The command may have been executed.
    #[must_use]
    pub fn is_connection_failure(&self) -> bool {
        self.0.kind() == ErrorKind::Io || self.0.is_connection_dropped()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}
