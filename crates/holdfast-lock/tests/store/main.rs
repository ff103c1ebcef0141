//! The store's half of a fence, on a Postgres of its own: what a guarded write reports, alone and
//! against a concurrent writer, and what the trigger refuses.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use holdfast_lock::postgres::{FencedTable, Write};
use holdfast_services::{TempFolder, TempPostgres};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

const TABLE: FencedTable<'_> = FencedTable::new("public.Counters", "name");

struct Store {
    // In this order: the folder is removed after the server has ended.
    postgres: TempPostgres,
    _folder: TempFolder,
}

impl Store {
    async fn start() -> Self {
        let folder = TempFolder::create().unwrap();
        let postgres = TempPostgres::start(&folder).await.unwrap();
        let store = Self { postgres, _folder: folder };

        let mut db = store.connect().await;
        let create = "create table \"Counters\" (name text primary key, value bigint not null)";
        sqlx::raw_sql(create).execute(&mut db).await.unwrap();
        // Rows that exist before the columns do.
        add(&mut db, "tea").await;
        sqlx::raw_sql(AssertSqlSafe(TABLE.migration())).execute(&mut db).await.unwrap();
        store
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.postgres.url()).await.unwrap()
    }
}

async fn add(db: &mut PgConnection, name: &str) {
    let insert = sqlx::query("insert into \"Counters\" (name, value) values ($1, 0)").bind(name);
    insert.execute(db).await.unwrap();
}

async fn row(db: &mut PgConnection, name: &str) -> (i64, i64, i64) {
    let select = "select value, version, fence from \"Counters\" where name = $1";
    sqlx::query_as(select).bind(name).fetch_one(db).await.unwrap()
}

async fn write(db: &mut PgConnection, name: &str, version: i64, fence: i64, value: i64) -> Write {
    TABLE.write(db, name, version, fence, "value = $4", |query| query.bind(value)).await.unwrap()
}

/// One server for all: each case has a row of its own.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let store = Store::start().await;
    write_says_why_it_matched_no_row(&store).await;
    write_that_waited_sees_what_was_written(&store).await;
    trigger_refuses_writers_without_guard(&store).await;
    store.postgres.stop().await;
    println!("3 cases of the store passed");
}

async fn write_says_why_it_matched_no_row(store: &Store) {
    let db = &mut store.connect().await;
    assert_eq!(write(db, "tea", 0, 65, 1).await, Write::Done);
    // The same holder writes twice, with what it knows of the version.
    assert_eq!(write(db, "tea", 1, 65, 2).await, Write::Done);
    assert_eq!(row(db, "tea").await, (2, 2, 65));

    assert_eq!(write(db, "tea", 2, 1, 9).await, Write::Stale { fence: 65 });
    // A paused holder has an old version too: that it is stale says more.
    assert_eq!(write(db, "tea", 0, 1, 9).await, Write::Stale { fence: 65 });
    assert_eq!(write(db, "tea", 1, 65, 9).await, Write::Changed { version: 2 });
    assert_eq!(write(db, "tea", 1, 129, 9).await, Write::Changed { version: 2 });
    assert_eq!(write(db, "coffee", 0, 65, 9).await, Write::Missing);
    assert_eq!(row(db, "tea").await, (2, 2, 65));
}

/// The update waits for another transaction's row lock, and matches the row no more.
async fn write_that_waited_sees_what_was_written(store: &Store) {
    let (first, second) = (&mut store.connect().await, &mut store.connect().await);
    add(first, "waited").await;

    let mut transaction = first.begin().await.unwrap();
    assert_eq!(write(&mut transaction, "waited", 0, 129, 1).await, Write::Done);
    let pid: i32 =
        sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *second).await.unwrap();
    let waits = write(second, "waited", 0, 65, 2);
    let commits = async {
        let watcher = &mut store.connect().await;
        let waits = "select count(*) from pg_locks where pid = $1 and not granted";
        loop {
            let count: i64 =
                sqlx::query_scalar(waits).bind(pid).fetch_one(&mut *watcher).await.unwrap();
            if count > 0 {
                break;
            }
        }
        transaction.commit().await.unwrap();
    };
    let (late, ()) = tokio::join!(waits, commits);
    assert_eq!(late, Write::Stale { fence: 129 });
}

async fn trigger_refuses_writers_without_guard(store: &Store) {
    let db = &mut store.connect().await;
    add(db, "trigger").await;
    assert_eq!(write(db, "trigger", 0, 65, 1).await, Write::Done);

    for (set, allowed) in [
        ("value = 7", false),
        ("value = 7, version = version + 1, fence = 64", false),
        ("value = 7, version = version + 2, fence = 66", false),
        ("value = 7, version = version + 1, fence = 66", true),
    ] {
        let update = format!("update \"Counters\" set {set} where name = 'trigger'");
        let result = sqlx::raw_sql(AssertSqlSafe(update)).execute(&mut *db).await;
        let code = result.err().and_then(|error| error.as_database_error()?.code().map(Into::into));
        assert_eq!(code, (!allowed).then(|| "23514".to_owned()), "{set}");
    }
    assert_eq!(row(db, "trigger").await, (7, 2, 66));
}
