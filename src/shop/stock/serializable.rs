//! `serializable`: let Postgres find out whether two transactions got in each other's way.
//!
//! # Guarantee
//! The code is the plain read-then-update, and the outcome is as if all serializable transactions
//! had run one after the other: of two that read the same row and write it, one is ended with error
//! 40001, and its whole transaction begins again. It is the only one here that would also protect a
//! decision made from rows that are read and *not* written.
//!
//! # Breaks when
//! One of the two is not serializable: the promise is kept among their own kind. And in a crowd it
//! gives up, as `version` does, and for more reasons: what Postgres remembers of who read what is
//! coarse, and some are ended who harmed nobody.
//!
//! # Seen in the wild
//! “Just set the isolation level”: in one line of configuration, and without the retry, which every
//! manual asks for.

use sqlx::PgConnection;

use crate::shop::Error;

/// To be said first in a transaction, before anything is read.
pub async fn isolate(tx: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("set transaction isolation level serializable").execute(tx).await?;
    Ok(())
}
