//! Learns which statements write the stock without naming its tables: a trigger, a function or a
//! view does it.
//!
//! One order is placed, and after each of its statements Postgres is asked what its transaction has
//! written. Not seen is what is written at the commit, by a deferred trigger.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use futures_util::future::join;
use holdfast_base::output::print_progress;
use holdfast_services::Exchange;

use super::database::Database;
use super::evidence::shortened;
use super::learned::Learned;
use super::pass::{Load, Pass};
use super::sale::prepare;
use super::sql::{ends_transaction, fingerprint, is_scheduled};
use super::stage::{QUIET, ServiceStage};
use super::transactions::connection_of;
use super::watch::{Aim, Seen, Strike};

const ONE: Load = Load { units: 1, attempts: 1, buyers: 1 };
/// Key of the file's query.
const STOCK: &str = "[books] stock";
/// Characters of a statement.
const MAX_CHARS: usize = 120;

/// Looks for such statements, if none of the last run names the tables in a write.
pub(super) async fn learn_hidden_writes(
    stage: &mut ServiceStage<'_>,
    seed: u64,
) -> anyhow::Result<()> {
    let is_blind = stage.file.is_attached() || stage.learned.tables.is_empty();
    if is_blind || stage.watch.has_seen_write() {
        return Ok(());
    }
    let (item, attempts) = prepare(stage, Pass::Control, ONE, seed).await?;
    stage.watch.begin(None);
    let ServiceStage { file, buyers, watch, database, learned, .. } = &mut *stage;
    let stock = file.books.stock.as_ref().context("[books] has no `stock`")?;
    let database = database.as_mut().context("there is no database")?;
    // The order may have locked the table, and go on only when its answer on another connection,
    // which is looked at, goes on.
    database.run(STOCK, "set lock_timeout = '500ms'").await?;
    let mut look = Look {
        database,
        tables: &learned.tables,
        stock: item.values.fill(stock),
        left: ONE.units,
        writing: HashSet::new(),
        found: BTreeSet::new(),
    };

    let selling = async {
        buyers.order(Pass::Control, attempts, ONE.buyers, &item.values).await;
        watch.disarm();
    };
    let looking = async {
        let mut looked_at = 0;
        // Each answer is held until it is known what the statement has written.
        while buyers.ended.load(Ordering::Relaxed) == 0
            && let Ok(Strike { go, .. }) = watch.arm(Aim::Answer, None).await
        {
            let seen = watch.seen();
            for seen in &seen[looked_at..] {
                look.at(seen).await?;
            }
            looked_at = seen.len();
            let _ = go.send(true);
        }
        anyhow::Ok(())
    };
    let ((), looked) = join(selling, looking).await;
    look.database.run(STOCK, "reset lock_timeout").await?;
    looked?;
    let hidden_writes: Vec<String> = look.found.into_iter().collect();
    stage.wait_quiet(QUIET).await;

    if !hidden_writes.is_empty() {
        let tables = stage.learned.tables.join(", ");
        let statements = hidden_writes.iter().map(|it| shortened(it, MAX_CHARS));
        let statements = statements.collect::<Vec<_>>().join("\n  ");
        print_progress(&format!(
            "no statement names {tables} in a write; what writes it is a trigger or a function, \
             of\n  {statements}"
        ));
        let learned = std::mem::take(&mut stage.learned);
        stage.set_learned(Learned { hidden_writes, ..learned });
    }
    Ok(())
}

struct Look<'a> {
    database: &'a mut Database,
    tables: &'a [String],
    /// The query of the stock, and what it has returned.
    stock: String,
    left: i64,
    /// Connections whose transaction was seen to write.
    writing: HashSet<(usize, u64)>,
    found: BTreeSet<String>,
}

impl Look<'_> {
    /// Looks whether what was just answered has written the stock.
    async fn at(&mut self, seen: &Seen) -> anyhow::Result<()> {
        let exchange = &seen.exchange;
        let connection = connection_of(seen);
        if exchange.in_transaction {
            // The first one: its locks stay until the end.
            if !self.writing.contains(&connection)
                && self.database.has_written(exchange.backend, self.tables).await?
            {
                self.writing.insert(connection);
                self.found.extend(scheduled(exchange));
            }
            return Ok(());
        }

        let has_written = self.writing.remove(&connection);
        // If the table is locked, what was written is seen when that transaction has ended.
        let Ok(left) = self.database.number(STOCK, &self.stock).await else { return Ok(()) };
        let has_changed = left != self.left;
        self.left = left;
        // An answer that was seen after this one may be the end of a transaction that has written.
        if has_changed && !has_written && self.writing.is_empty() {
            self.found.extend(scheduled(exchange));
        }
        Ok(())
    }
}

/// Returns what may have written, without its values.
fn scheduled(exchange: &Exchange) -> impl Iterator<Item = String> {
    let statements = exchange.statements.iter().filter(|statement| statement.error.is_none());
    let fingerprints = statements.map(|statement| fingerprint(&statement.text));
    fingerprints.filter(|text| is_scheduled(text) && !ends_transaction(text))
}

#[cfg(test)]
mod tests {
    use holdfast_services::Statement;

    use super::*;

    #[test]
    fn begin_and_commit_are_no_writes() {
        let mut exchange = Exchange::default();
        let texts = ["BEGIN", "select take('tea')", "insert into sales values (1)", "commit"];
        exchange.statements =
            texts.map(|text| Statement { text: text.into(), ..Statement::default() }).to_vec();
        exchange.statements[2].error = Some("sold out".to_owned());
        assert_eq!(scheduled(&exchange).collect::<Vec<_>>(), ["select take(?)"]);
    }
}
