//! Says why Postgres can't be used, and what to do.
//!
//! The server's code (SQLSTATE) decides; its own words, which may be in another language, are
//! quoted. Tests: `tests/it/connect_errors.rs`.

use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;

use super::address;
use super::error::Error;
use super::error_class::{ErrorClass, classify};
use super::tls;

/// Converts the error of a connection attempt, or of the first statement after it.
pub(super) fn explain(error: sqlx::Error, options: &PgConnectOptions) -> Error {
    if let Some(error) = tls::explain(&error) {
        return error;
    }

    let place = place(options);
    match address::name_missing_socket(error, options) {
        sqlx::Error::Database(error) => refusal(error.as_ref()),
        sqlx::Error::PoolTimedOut => {
            Error::Unreachable { place, cause: "no response in time".to_owned() }
        }
        other => Error::Unreachable { place, cause: other.to_string() },
    }
}

/// Converts the error of a statement that the user may not execute; `None` for other errors.
pub(super) fn explain_refusal(error: &sqlx::Error) -> Option<Error> {
    let is_refusal = classify(error) == ErrorClass::Refused;
    error.as_database_error().filter(|_| is_refusal).map(refusal)
}

fn refusal(error: &dyn DatabaseError) -> Error {
    let code = error.code().unwrap_or_default();
    let cause = error.message().to_owned();
    Error::Refused { advice: advice(&code), cause }
}

/// Advice about a missing right.
pub(super) const GRANT: &str = "Grant it to the user in DATABASE_URL, or use a user who has it";

fn advice(code: &str) -> &'static str {
    match code {
        "28P01" => "Correct the user and the password in DATABASE_URL",
        _ if code.starts_with("28") => {
            "Correct the user in DATABASE_URL; let it log in (alter role NAME login); if the server \
             requires TLS, set sslmode=verify-full in DATABASE_URL; or add a line for this user, \
             database and address to the server's pg_hba.conf, and reload it"
        }
        "3D000" => "Create the database, or correct its name in DATABASE_URL",
        "42501" => GRANT,
        "53300" => {
            "Raise max_connections of the server or the limit of the role, or let each replica use \
             fewer: HOLDFAST_POOL_SIZE"
        }
        _ if code.starts_with("57P") => "Try again when it accepts connections",
        _ => "Correct the settings of the server, or DATABASE_URL",
    }
}

/// Returns where the server is expected: `host:port`, or its socket.
fn place(options: &PgConnectOptions) -> String {
    let port = options.get_port();
    match options.get_socket() {
        Some(folder) => format!("{}/.s.PGSQL.{port}", folder.display()),
        None => format!("{}:{port}", options.get_host()),
    }
}
