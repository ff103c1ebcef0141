//! Errors of the client.

use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use super::refusal::Refusal;
use super::tls::TlsFailure;

/// The kind of an error that stands for a command which was not sent.
const NOT_SENT: ErrorKind = ErrorKind::ClusterConnectionNotFound;
/// Parts of the errors of Redis 7.0, and of later ones and Valkey, about a permission that is
/// missing in a script.
const NO_PERMISSION: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];
/// Part of the error of redis-rs about the database of an address.
const NO_DATABASE: &str = "refused to switch database";

/// A command failed, or its response did not arrive in time. Its text contains those of its causes.
/// Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<RedisError>);

/// The cause of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCause {
    /// Redis could not be reached, or did not respond in time.
    Unavailable,
    /// Redis responded with an error, or no server could execute the command.
    Refused,
    /// The address is not one of Redis, or the sentinels do not know the name in it.
    InvalidAddress,
    /// The response does not have the expected form.
    UnexpectedResponse,
}

impl Error {
    pub(crate) fn new(error: RedisError) -> Self {
        // Of a pipeline, the first command's error, because redis-rs gives a pipeline's no code.
        let first = error.clone().into_server_errors();
        let first = first.and_then(|errors| Some(errors.first()?.1.clone().into()));
        Self(Arc::new(first.unwrap_or(error)))
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(super::request::timed_out())
    }

    /// Returns whether a server may know of the command. False only in a Cluster, whose node did
    /// not respond to earlier ones.
    pub(crate) fn was_sent(&self) -> bool {
        self.0.kind() != NOT_SENT
    }

    /// Creates the error that a command in a script had, from its code and text.
    pub(crate) fn of_script(text: &str) -> Self {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        Self::new(::redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
    }

    /// Returns the code of an error that the server reported, e.g. `WRONGTYPE`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        // There is no code for a permission that is missing in a script.
        let detail = self.0.detail().unwrap_or_default();
        let of_script = NO_PERMISSION.iter().any(|text| detail.contains(text));
        if of_script { Some("NOPERM") } else { self.0.code() }
    }

    /// Returns why the server refuses the command, if it does: not if it does not respond.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let code = match self.cause() {
            ErrorCause::Unavailable => return None,
            ErrorCause::InvalidAddress => "NOPRIMARY",
            ErrorCause::UnexpectedResponse => "NOTREDIS",
            ErrorCause::Refused if self.to_string().contains(NO_DATABASE) => "NODB",
            ErrorCause::Refused => self.code().unwrap_or("ERR"),
        };
        Some(Refusal::of_code(code))
    }

    /// Returns whether the server could not be reached, or did not respond in time. The command may
    /// have been executed.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.cause() == ErrorCause::Unavailable
    }

    /// Returns why the server cannot be reached, if that is a failure of TLS.
    #[must_use]
    pub fn tls_failure(&self) -> Option<TlsFailure> {
        TlsFailure::find(&*self.0)
    }

    pub(crate) fn cause(&self) -> ErrorCause {
        match self.0.kind() {
            ErrorKind::Io | NOT_SENT => ErrorCause::Unavailable,
            ErrorKind::InvalidClientConfig => ErrorCause::InvalidAddress,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => ErrorCause::UnexpectedResponse,
            _ => ErrorCause::Refused,
        }
    }
}

/// Creates the error of a command that is not sent, because an earlier one failed with `cause`.
pub(super) fn not_sent(cause: &RedisError) -> RedisError {
    (NOT_SENT, "not sent, because the node does not respond", cause.to_string()).into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failure) = self.tls_failure() {
            return write!(f, "{failure} ({})", self.0);
        }
        f.write_str(&text(&self.0))
    }
}

/// The text, since a `main` that returns an error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Returns the text of an error; about an address, without the name of its kind, which redis-rs
/// writes between its summary and its detail.
pub(super) fn text(error: &RedisError) -> String {
    let text = error.to_string();
    if error.kind() != ErrorKind::InvalidClientConfig {
        return text;
    }
    text.replacen(" - InvalidClientConfig", "", 1).trim_start_matches(": ").to_owned()
}
