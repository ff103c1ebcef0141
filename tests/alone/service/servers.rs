//! Services in a Postgres of somebody: the judge uses a database of its own there, drops it however
//! it ends, and touches no other one.

use std::process::Command;
use std::time::Duration;

use holdfast_services::{Proxy, TempFolder, TempPostgres, Upstream};
use holdfast_testkit::pooler::Pooler;
use rustix::process::Signal;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use super::misfits::{Misfit, assert_not_judged};
use super::{SHOP, changed_shop, found, pass, start};
use crate::judge::command::JudgeRun;
use crate::{SharedMachine, share_machine};

/// The role may make databases, and no more.
const THEIRS: &str = "create role staging login createdb password 'pw';
    create table theirs (id int); insert into theirs values (1);
    alter table theirs owner to staging";
/// Everything that somebody has.
const CONTENTS: &str = "select concat_ws(' ', relname, xmin) from pg_class
      where relnamespace = 'public'::regnamespace
    union all select concat_ws(' ', xmin, ctid, id) from theirs
    union all select datname::text from pg_database order by 1";

struct Theirs {
    postgres: TempPostgres,
    /// Before its socket.
    proxy: Proxy,
    folder: TempFolder,
    before: Vec<String>,
    _machine: SharedMachine,
}

impl Theirs {
    async fn start() -> Self {
        let _machine = share_machine();
        let folder = TempFolder::create().unwrap();
        let postgres = TempPostgres::start(&folder).await.unwrap();
        let proxy = Proxy::start(Upstream::Socket(postgres.socket())).await.unwrap();
        let mut theirs = Self { postgres, proxy, folder, before: Vec::new(), _machine };
        theirs.session().await.execute(THEIRS).await.unwrap();
        theirs.before = theirs.contents().await;
        theirs
    }

    async fn session(&self) -> PgConnection {
        PgConnection::connect(&self.postgres.url()).await.unwrap()
    }

    async fn contents(&self) -> Vec<String> {
        sqlx::query_scalar(CONTENTS).fetch_all(&mut self.session().await).await.unwrap()
    }

    fn url(&self) -> String {
        format!("postgres://staging:pw@127.0.0.1:{}/holdfast", self.proxy.port)
    }

    fn pooler(&self, target: &str) -> Option<Pooler> {
        let folder = self.postgres.socket().parent().unwrap().to_owned();
        let target = format!("port=5432 user=staging password=pw {target}");
        let settings = "pool_mode = session\ndefault_pool_size = 60\n\
                        ignore_startup_parameters = extra_float_digits";
        Pooler::start(&folder, &target, settings)
    }

    /// Ends it, after a look whether it is as it was.
    async fn stop(self) {
        assert_eq!(self.contents().await, self.before);
        self.postgres.stop().await;
        drop(self.folder);
    }
}

/// A service whose items are rows; it never gets an order that it could place.
fn rows(mode: &str, database: &str, changes: &[(&str, &str)]) -> Misfit {
    let service = format!("[service]\ndatabase = \"{database}\"");
    let setup = "sql = \"create table if not exists tea (id text, stock int); \
                 insert into tea values ('{item}', {stock})\"";
    let books = "stock = \"select stock from tea where id = '{item}'\"\nsold = \"select 0 where '{item}' > ''\"";
    let mut all = vec![
        ("[service]", service.as_str()),
        (r#"command = ["python3", "MISFITS", "make", "{stock}"]"#, setup),
        (r#"command = ["python3", "MISFITS", "books", "{item}"]"#, books),
    ];
    all.extend(changes);
    Misfit::with(mode, &all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_are_wrong_are_named() {
    let theirs = Theirs::start().await;
    let url = theirs.url();
    let with = |text: &str, other: &str| rows("sound", &url, &[(text, other)]);
    let (row, no_row) = ("select stock from tea where id = '{item}'", "where id = 'no {item}'");
    let zero = "\"select 0 where '{item}' > ''\"";
    let mut cases: Vec<(Misfit, &[&str])> = vec![
        (
            with("from tea", "from nothing"),
            &["[books] stock: `select stock from nothing", "relation \"nothing\" does not exist"],
        ),
        (with("where id = '{item}'", no_row), &["returned 0 rows instead of one. Does [setup]"]),
        (
            with(row, "select stok from tea where id = '{item}'"),
            &[
                "column \"stok\" does not exist\n",
                "HINT: Perhaps you meant to reference the column",
            ],
        ),
        (
            with(row, "select 1, '{item}'"),
            &["[books] stock: `select 1, 'item-", "returned 2 columns"],
        ),
        (
            with(row, "select 'many' where '{item}' > ''"),
            &["returned \"many\": it must be a whole number"],
        ),
        (
            with(row, "select null::int as rest where '{item}' > ''"),
            &["returned null: use coalesce(rest, 0)"],
        ),
        (
            with(zero, "\"select '{item}' from\""),
            &["[books] sold: `select 'item-", "` failed: syntax error"],
        ),
        (
            with("stock = \"", "by_key = \"select '{item}'\"\nstock = \""),
            &[
                "[books] by_key: `select 'item-",
                "must return two columns, a key and a number, not 1",
            ],
        ),
        (
            with("into tea", "into coffee"),
            &["[setup] sql: `create table", "failed: relation \"coffee\" does not exist"],
        ),
        (with("{stock})", "7)"), &["with a stock of 1", "finds 7 in stock", "is `{stock}` used"]),
        (
            with("staging:pw", "staging:no"),
            &["[service] database: can't connect to it", "password authentication failed"],
        ),
        (with("postgres://", "mysql://"), &["[service] database: it must be a URL"]),
    ];
    // All of its addresses lead to what is theirs.
    let pooler = theirs.pooler("dbname=holdfast");
    if let Some(pooler) = &pooler {
        let misfit = rows("sound", &pooler.url("holdfast"), &[]);
        cases.push((misfit, &["leads to another database than it names, holdfast instead of"]));
    }
    assert_not_judged(&cases);

    let may_not = "alter role staging nocreatedb";
    theirs.session().await.execute(may_not).await.unwrap();
    let refused: &[&str] = &["can't create a database of the judge's own", "permission denied"];
    assert_not_judged(&[(rows("sound", &url, &[]), refused)]);
    drop(pooler);
    theirs.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_judge_drops_its_database() {
    let theirs = Theirs::start().await;
    for (mode, signal) in [("never-ready", Signal::TERM), ("hangs", Signal::INT)] {
        let misfit = rows(mode, &theirs.url(), &[]);
        let run = misfit.start(&[]);
        run.wait_for_adapters();
        if mode == "hangs" {
            run.wait_for("an order hangs", || misfit.path("ordered").exists());
        }
        assert_eq!(theirs.contents().await.len(), theirs.before.len() + 1, "{mode}");
        run.send(signal);
        let run = run.finish();
        assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{mode}: {}", run.stderr);
        assert_eq!(theirs.contents().await, theirs.before, "{mode}: {}", run.stderr);
    }
    theirs.stop().await;
}

#[test]
fn judge_of_a_service_interrupted_at_its_start_leaves_no_folder() {
    let used = r#"[service]
env = { DATABASE_URL = "{database_url}" }"#;
    let misfit = Misfit::with("sound", &[("[service]", used)]);
    let mut judge = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    judge.args(["judge", "service"]).arg(misfit.path("service.toml"));
    JudgeRun::interrupt_at_its_start(judge);
}

/// An instance is stopped when the judge ends. Killed, the judge can't wait for the end of others.
#[test]
fn interrupted_or_killed_judge_of_a_paused_service_leaves_nothing_behind() {
    for (signal, code, limit) in [(Signal::INT, Some(2), 0), (Signal::KILL, None, 20)] {
        let run = start(SHOP.as_ref(), "conditional", &["--faults", "pause"]);
        run.wait_for_stopped_adapter();
        run.send(signal);
        let run = run.finish_within(Duration::from_secs(limit));
        assert_eq!((run.code, &*run.stdout), (code, ""), "{}", run.stderr);
    }
}

/// Starts a judgement of the shop in a server of somebody.
fn start_shop(mode: &str, database: &str) -> (TempDir, JudgeRun) {
    let folder = changed_shop("[service]", &format!("[service]\ndatabase = \"{database}\""));
    let options = ["--faults", "gate,kill", "--json", "-"];
    let run = start(&folder.path().join("service.toml"), mode, &options);
    (folder, run)
}

/// The second one behind PgBouncer, if that is installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_judges_at_once_in_one_server_are_right() {
    let theirs = Theirs::start().await;
    let pooler = theirs.pooler("");
    let (url, pooled) = (theirs.url(), pooler.as_ref().map(|pooler| pooler.url("holdfast")));
    let wrong = start_shop("check-then-decrement", &url);
    let right = start_shop("row-lock", pooled.as_ref().unwrap_or(&url));
    for ((_folder, run), code) in [(wrong, 1), (right, 0)] {
        let run = run.finish();
        assert_eq!(run.code, Some(code), "{}{}", run.stdout, run.stderr);
        let judgement = run.judgement();
        let gate = pass(&judgement, "gate");
        let expected: &[&str] = if code == 1 { &["oversold"] } else { &[] };
        assert_eq!((found(gate), &gate["ran"]), (expected.to_vec(), &true.into()), "{gate:#}");
        assert_eq!(pass(&judgement, "kill")["ran"], true, "{judgement:#}");
    }
    drop(pooler);
    theirs.stop().await;
}
