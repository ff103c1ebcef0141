//! The store's half of a fence, for Postgres with sqlx (feature `sqlx-postgres`): a write that
//! demands the version that was read and a fence that is not behind, and says why it matched no
//! row.
//!
//! ```rust,no_run
//! use holdfast_lock::FencedGuard;
//! use holdfast_lock::postgres::{FencedTable, Write};
//! use sqlx::PgConnection;
//!
//! const ITEMS: FencedTable<'_> = FencedTable::new("items", "sku");
//!
//! async fn sell(lease: &FencedGuard, db: &mut PgConnection) -> Result<bool, sqlx::Error> {
//!     let read = sqlx::query_as("select stock, version from items where sku = $1").bind("tea");
//!     let (stock, version): (i64, i64) = read.fetch_one(&mut *db).await?;
//!     if stock == 0 {
//!         return Ok(false);
//!     }
//!
//!     // `$1` to `$3` are the helper's.
//!     let write = ITEMS
//!         .write(db, "tea", version, lease.fence(), "stock = $4", |query| query.bind(stock - 1))
//!         .await?;
//!     // `Stale`: another holder has written since. `Changed`: read again.
//!     Ok(write == Write::Done)
//! }
//! ```
//!
//! The same in SQL, for any client, and recipes for Django and `SQLAlchemy`, stand in the guide
//! `docs/FENCES.md` of the repository.

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Encode, PgConnection, Type};

/// A table whose rows have the columns `version` and `fence`, both `bigint not null`
/// ([`FencedTable::migration`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FencedTable<'a> {
    name: &'a str,
    key: &'a str,
}

/// The result of [`FencedTable::write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// The row was written. Its version is one higher, and its fence is the writer's.
    Done,
    /// Nothing was written: a later holder, or one before Redis lost its counter, has written with
    /// this fence. Ask [`crate::FencedGuard::raise_fence`] with it: `None` says that the lock is
    /// lost; otherwise read again, and write with the new fence.
    Stale {
        /// The row's fence, above the writer's.
        fence: i64,
    },
    /// Nothing was written: the row has changed since it was read, by a writer with this fence or a
    /// lower one. Read again.
    Changed {
        /// The row's version.
        version: i64,
    },
    /// Nothing was written: there is no row with this key.
    Missing,
}

/// A query to which the values of `$4` and later are bound.
pub type PostgresQuery<'q> = Query<'q, Postgres, PgArguments>;

impl<'a> FencedTable<'a> {
    /// Describes the table `name` (with a schema: `shop.items`), whose rows the column `key`
    /// identifies. Both are quoted in each statement, so upper and lower case differ.
    #[must_use]
    pub const fn new(name: &'a str, key: &'a str) -> Self {
        Self { name, key }
    }

    /// Updates the row `key`, provided that it has `version` and a fence of at most `fence`.
    ///
    /// `set` is the SQL of the assignments, without those of `version` and `fence`; its parameters
    /// begin with `$4`, and `bind` binds them in this order. It is part of the statement: never
    /// build it from a user's input.
    ///
    /// Inside a transaction the row stays locked until its end, and what was done before stays: a
    /// result other than [`Write::Done`] does not roll it back.
    ///
    /// # Errors
    /// Those of Postgres: that there is no column `version`, if [`FencedTable::migration`] was not
    /// run; `incorrect binary data format`, if a value is not of its column's exact type. After a
    /// lost connection it is unknown whether the row was written; a repetition with the same
    /// version is safe, and says [`Write::Changed`] if it was.
    ///
    /// # Cancel safety
    /// A dropped future may have written the row, and the connection must not be used again.
    pub async fn write<'k, K>(
        &self,
        connection: &mut PgConnection,
        key: K,
        version: i64,
        fence: i64,
        set: &'static str,
        bind: impl for<'q> FnOnce(PostgresQuery<'q>) -> PostgresQuery<'q>,
    ) -> Result<Write, sqlx::Error>
    where
        K: Encode<'k, Postgres> + Type<Postgres> + Clone + Send + 'k,
    {
        let update = sqlx::query(AssertSqlSafe(self.update(set)));
        let update = bind(update.bind(key.clone()).bind(version).bind(fence));
        if update.execute(&mut *connection).await?.rows_affected() > 0 {
            return Ok(Write::Done);
        }

        // In a statement of its own, whose snapshot has what the update waited for.
        let found = sqlx::query_as(AssertSqlSafe(self.select())).bind(key);
        let found: Option<(i64, i64)> = found.fetch_optional(connection).await?;
        Ok(match found {
            None => Write::Missing,
            Some((_, theirs)) if theirs > fence => Write::Stale { fence: theirs },
            Some((version, _)) => Write::Changed { version },
        })
    }

    /// Returns the statement of [`FencedTable::write`]: `$1` is the key, `$2` the version that was
    /// read, `$3` the fence.
    #[must_use]
    pub fn update(&self, set: &str) -> String {
        let (table, key) = (quoted(self.name), quoted(self.key));
        format!(
            "update {table} set {set}, version = version + 1, fence = $3 \
             where {key} = $1 and version = $2 and fence <= $3"
        )
    }

    fn select(&self) -> String {
        let (table, key) = (quoted(self.name), quoted(self.key));
        format!("select version, fence from {table} where {key} = $1")
    }

    /// Returns the SQL of a migration: adds the two columns to an existing table, with checks that
    /// they are not negative, and a trigger that refuses an update by a writer who forgot the
    /// guard, with SQLSTATE `23514` (`check_violation`): one that lowers the fence, or does not
    /// increment the version. Inserts need nothing: a new row has version and fence 0.
    ///
    /// Several statements; run it once for a table, e.g. with [`sqlx::raw_sql`]: a second time it
    /// fails, as the columns exist. The trigger and its function, which all fenced tables of a
    /// schema share, are both named `check_fence`.
    #[must_use]
    pub fn migration(&self) -> String {
        include_str!("fenced_table.sql").replace("{table}", &quoted(self.name))
    }
}

/// Quotes an identifier, whose parts are separated by dots.
fn quoted(identifier: &str) -> String {
    let parts = identifier.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_quoted() {
        let table = FencedTable::new("shop.it\"ems", "SKU");
        let update = table.update("stock = $4");
        assert!(update.starts_with("update \"shop\".\"it\"\"ems\" set stock = $4,"), "{update}");
        assert!(update.contains("where \"SKU\" = $1 and"), "{update}");
        assert!(!table.migration().contains("{table}"));
    }
}
