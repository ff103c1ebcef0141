//! Classifies errors of Postgres by what the caller can do about them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A serialization failure or a deadlock; the whole transaction may be retried.
    Conflict,
    LockTimeout,
    /// All connections are in use.
    NoConnection,
    /// A statement took too long, or an operator cancelled it.
    Cancelled,
    /// The server is a standby, or its disk or memory is full: nothing was written. Another session
    /// may be with another server.
    CannotWrite,
    /// The server refuses the user, the database or the statement. Nothing was written.
    Refused,
    /// Postgres ended the session, which was idle for too long, or a migration changed a statement
    /// that it has prepared. Nothing was written, and another session works.
    SessionEnded,
    /// The connection or the server is lost; the outcome of a write is unknown.
    Unavailable,
    Bug,
}

impl ErrorClass {
    /// Returns whether the session cannot be used again, but another one may work.
    pub(super) fn ends_session(self) -> bool {
        matches!(self, Self::SessionEnded | Self::Unavailable)
    }
}

pub fn classify(error: &sqlx::Error) -> ErrorClass {
    match error {
        sqlx::Error::PoolTimedOut => ErrorClass::NoConnection,
        sqlx::Error::PoolClosed
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => ErrorClass::Unavailable,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some(code) => classify_code(code),
            None => ErrorClass::Bug,
        },
        _ => ErrorClass::Bug,
    }
}

fn classify_code(code: &str) -> ErrorClass {
    match code {
        "40001" | "40P01" => ErrorClass::Conflict,
        "55P03" => ErrorClass::LockTimeout,
        // 25006: read-only; 53100, 53200: out of disk or memory; class 58: I/O error.
        "25006" | "53100" | "53200" => ErrorClass::CannotWrite,
        _ if code.starts_with("58") => ErrorClass::CannotWrite,
        // The timeout of a statement, or pg_cancel_backend.
        "57014" => ErrorClass::Cancelled,
        // Class 53: out of connections or of another configured resource.
        _ if code.starts_with("53") => ErrorClass::NoConnection,
        // 42501: a right is missing; 3D000: no such database; class 28: the user is refused.
        "42501" | "3D000" => ErrorClass::Refused,
        _ if code.starts_with("28") => ErrorClass::Refused,
        // 25P03: idle in a transaction for too long; 57P05: idle outside of one; 0A000: a statement
        // changed, because the shop uses no feature that a supported version lacks.
        "25P03" | "57P05" | "0A000" => ErrorClass::SessionEnded,
        // Class 08: connection; 57P: shutdown.
        _ if code.starts_with("08") || code.starts_with("57P") => ErrorClass::Unavailable,
        _ => ErrorClass::Bug,
    }
}

pub fn violates(error: &sqlx::Error, constraint: &str) -> bool {
    error.as_database_error().and_then(|error| error.constraint()) == Some(constraint)
}
