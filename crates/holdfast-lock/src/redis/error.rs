//! Errors of the client.

use std::fmt;
use std::sync::Arc;

use redis::RedisError;

/// A command failed, or its response did not arrive in time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Error(Arc<RedisError>);

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Self(Arc::new(error))
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
