//! The judge's tables: a row that the clients change, and a ledger of their changes. Each write
//! sets the stock to a number that was computed from an earlier read, and records it in the same
//! statement. The verdict is computed from these tables alone.
//!
//! A second row is for writes that demand the fence. Its read registers the fence unless the row
//! has a higher one, and its write demands that none was registered since: a check at the write
//! alone would let the old holder write between the read and the write of the new one. Nothing but
//! the fence protects this row, so a lock whose fences repeat loses updates here, too.

use std::str::FromStr as _;

use anyhow::Context as _;
use serde::Deserialize;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Json;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::protocol::Turn;
use super::report::ClientId;

pub(super) const INITIAL_STOCK: i64 = 1_000_000;
/// Breaks of the chain that are read as evidence.
const MAX_BREAKS: i64 = 3;

const SCHEMA: &str = "
    create table judge_row (
        pass bigint not null, fenced boolean not null,
        stock bigint not null, version bigint not null, fence bigint not null,
        primary key (pass, fenced));
    create table judge_ledger (
        pass bigint not null, fenced boolean not null, version bigint not null,
        worker int not null, client int not null,
        before bigint not null, after bigint not null, fence bigint,
        granted_us bigint not null, sent_us bigint not null,
        primary key (pass, fenced, version));
    -- For the fences of the course's learners: two adapters that create it at once get in each
    -- other's way.
    create sequence fences";

const READ: &str = "select stock from judge_row where pass = $1 and not fenced";

/// Registers the fence; no row if the row has a higher one.
const FENCED_READ: &str = "
    update judge_row set fence = $2 where pass = $1 and fenced and fence <= $2 returning stock";

/// The write; that of the row without a fence is unconditional.
const WRITE: &str = "
    with written as (
        update judge_row set stock = $7 - 1, version = version + 1
        where pass = $1 and fenced = $2 and (not fenced or fence = $6)
        returning version)
    insert into judge_ledger
        (pass, fenced, version, worker, client, granted_us, before, after, fence, sent_us)
    select $1, $2, version, $3, $4, $5, $7, $7 - 1, $6, $8 from written";

const STOCK: &str = "select stock from judge_row where pass = $1 and fenced = $2";

const ROWS: &str = "
    select to_jsonb(l) from judge_ledger l where pass = $1 order by fenced, version";

const LOST: &str = "
    select (select count(*) from judge_ledger l
            where l.pass = r.pass and l.fenced = r.fenced) - ($3 - r.stock)
    from judge_row r where pass = $1 and fenced = $2";

/// Writes that took the stock back up, each with the first earlier write from the same value; those
/// of two clients first.
const BREAKS: &str = "
    with chain as (
        select *, coalesce(lag(after) over (order by version), before) as stock_before
        from judge_ledger where pass = $1 and fenced = $2)
    select to_jsonb(early), to_jsonb(late)
    from chain late
    cross join lateral (
        select * from chain
        where before = late.before and version < late.version order by version limit 1) early
    where late.before > late.stock_before
    order by (late.worker, late.client) = (early.worker, early.client),
             late.before - late.stock_before desc, late.version
    limit $3";

#[derive(Debug, Deserialize)]
pub(super) struct ChainEntry {
    #[serde(flatten)]
    pub(super) id: ClientId,
    pub(super) granted_us: u64,
    /// The value from which the write was computed.
    pub(super) before: i64,
    pub(super) fence: Option<i64>,
    pub(super) sent_us: u64,
    /// The stock that it overwrote.
    pub(super) stock_before: i64,
}

/// A write to a row.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct RowWrite {
    #[serde(flatten)]
    pub(super) id: ClientId,
    pub(super) fenced: bool,
    pub(super) version: i64,
    pub(super) before: i64,
    pub(super) after: i64,
    pub(super) granted_us: u64,
    pub(super) sent_us: u64,
}

impl RowWrite {
    /// Returns whether both are of one turn.
    pub(super) fn is_of_turn(&self, other: &Self) -> bool {
        (self.id, self.granted_us) == (other.id, other.granted_us)
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    connection: PgConnection,
    pass: i64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ReadRow {
    pub(super) stock: i64,
    /// Stock of the row whose writes demand the fence; `None` without a fence, or with one below
    /// another that was registered.
    fenced_stock: Option<i64>,
}

impl Ledger {
    pub(super) async fn connect(url: &str, pass: i64) -> anyhow::Result<Self> {
        // Slow commits are what is judged.
        let options = PgConnectOptions::from_str(url)?.disable_statement_logging();
        let connection = PgConnection::connect_with(&options).await;
        let connection = connection.context("can't connect to the judge's Postgres")?;
        Ok(Self { connection, pass })
    }

    pub(super) async fn create(&mut self) -> anyhow::Result<()> {
        sqlx::raw_sql(SCHEMA).execute(&mut self.connection).await?;
        Ok(())
    }

    /// Creates the rows of the next pass; returns its number.
    pub(super) async fn begin_pass(&mut self) -> anyhow::Result<i64> {
        self.pass += 1;
        sqlx::query("insert into judge_row values ($1, false, $2, 0, 0), ($1, true, $2, 0, 0)")
            .bind(self.pass)
            .bind(INITIAL_STOCK)
            .execute(&mut self.connection)
            .await?;
        Ok(self.pass)
    }

    /// Reads both rows; the second one registers the fence.
    pub(super) async fn read(&mut self, fence: Option<i64>) -> anyhow::Result<ReadRow> {
        // Before the second one, which waits for a commit under way: an application without fences
        // would not, and reads the value from before it.
        let stock =
            sqlx::query_scalar(READ).bind(self.pass).fetch_one(&mut self.connection).await?;
        let fenced_stock = match fence {
            Some(fence) => {
                let registering = sqlx::query_scalar(FENCED_READ).bind(self.pass).bind(fence);
                registering.fetch_optional(&mut self.connection).await?
            }
            None => None,
        };
        Ok(ReadRow { stock, fenced_stock })
    }

    /// Writes what was computed from `row`, and with a fence the second row, too. The commit takes
    /// `commit_ms` longer than usual. Returns whether the second row refused the fence at the read
    /// or now.
    pub(super) async fn write(
        &mut self,
        turn: &Turn,
        row: ReadRow,
        commit_ms: u64,
    ) -> anyhow::Result<bool> {
        if commit_ms == 0 {
            return self.execute(turn, row).await;
        }

        sqlx::raw_sql("begin").execute(&mut self.connection).await?;
        let refused = self.execute(turn, row).await?;
        // The write is done and not visible: that is what a slow commit is.
        sqlx::query("select pg_sleep($1)")
            .bind(commit_ms as f64 / 1_000.0)
            .execute(&mut self.connection)
            .await?;
        sqlx::raw_sql("commit").execute(&mut self.connection).await?;
        Ok(refused)
    }

    async fn execute(&mut self, turn: &Turn, row: ReadRow) -> anyhow::Result<bool> {
        let mut refused = turn.fence.is_some();
        for (fenced, stock) in [(false, Some(row.stock)), (true, row.fenced_stock)] {
            let Some(stock) = stock else { continue };
            let written = sqlx::query(WRITE)
                .bind(self.pass)
                .bind(fenced)
                .bind(i32::try_from(turn.id.worker)?)
                .bind(i32::try_from(turn.id.client)?)
                .bind(i64::try_from(turn.answered_us)?)
                .bind(turn.fence)
                .bind(stock)
                .bind(i64::try_from(turn.wrote_us)?)
                .execute(&mut self.connection)
                .await?
                .rows_affected();
            refused &= !fenced || written == 0;
        }
        Ok(refused)
    }

    /// Returns all writes, in the order in which each row was written.
    pub(super) async fn rows(&mut self) -> anyhow::Result<Vec<RowWrite>> {
        let rows: Vec<Json<RowWrite>> =
            sqlx::query_scalar(ROWS).bind(self.pass).fetch_all(&mut self.connection).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    pub(super) async fn stock(&mut self, fenced: bool) -> anyhow::Result<i64> {
        let asking = sqlx::query_scalar(STOCK).bind(self.pass).bind(fenced);
        Ok(asking.fetch_one(&mut self.connection).await?)
    }

    /// Returns the units that entries took and the stock does not show.
    pub(super) async fn lost_updates(&mut self, fenced: bool) -> anyhow::Result<u64> {
        let lost: i64 = sqlx::query_scalar(LOST)
            .bind(self.pass)
            .bind(fenced)
            .bind(INITIAL_STOCK)
            .fetch_one(&mut self.connection)
            .await?;
        u64::try_from(lost).context("the ledger has fewer entries than the stock shows")
    }

    /// Returns the largest breaks of the chain of writes: two from the same value each.
    pub(super) async fn breaks(
        &mut self,
        fenced: bool,
    ) -> anyhow::Result<Vec<(ChainEntry, ChainEntry)>> {
        let breaks: Vec<(Json<ChainEntry>, Json<ChainEntry>)> = sqlx::query_as(BREAKS)
            .bind(self.pass)
            .bind(fenced)
            .bind(MAX_BREAKS)
            .fetch_all(&mut self.connection)
            .await?;
        Ok(breaks.into_iter().map(|(early, late)| (early.0, late.0)).collect())
    }
}
