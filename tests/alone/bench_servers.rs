//! `holdfast bench --on-your-servers`: a Postgres and a Redis that belong to somebody are measured,
//! with no right but CREATEDB, and left as they were.

use std::process::{Output, Stdio};
use std::time::Duration;

use holdfast_services::{TempFolder, TempPostgres, TempRedis};
use holdfast_testkit::pooler::Pooler;
use redis::Commands as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::share_machine;

const SHORT: [&str; 6] = ["--rounds", "1", "--seconds", "0.2", "--connections", "4"];
/// Of a benchmark, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// Servers of somebody, with a role for the benchmark that may create databases.
struct Staging {
    postgres: TempPostgres,
    redis: TempRedis,
    folder: TempFolder,
}

impl Staging {
    async fn start() -> Self {
        let folder = TempFolder::create().unwrap();
        let postgres = TempPostgres::start(&folder).await.unwrap();
        let redis = TempRedis::start().await.unwrap();
        let staging = Self { postgres, redis, folder };

        staging.execute("create role staging login createdb password 'pw'").await;
        // As a role may have a schema of its own in the database that it uses.
        staging.execute("alter role staging set search_path = theirs").await;
        staging.execute("create table items (id int, name text)").await;
        staging.execute("insert into items select n, 'theirs' from generate_series(1, 99) n").await;
        staging.execute("alter table items owner to staging").await;
        let mut keys = staging.keys();
        let _: () = keys.set("holdfast:lock:item:theirs", "held").unwrap();
        let _: () = keys.set("holdfast:holdfast_bench", "not a benchmark's").unwrap();
        staging
    }

    fn url(&self, user: &str, password: &str) -> String {
        let folder = self.postgres.socket().parent().unwrap().display().to_string();
        format!("postgres:///holdfast?host={folder}&port=5432&user={user}&password={password}")
    }

    async fn session(&self) -> PgConnection {
        PgConnection::connect(&self.url("holdfast", &self.postgres.password)).await.unwrap()
    }

    async fn execute(&self, statement: &str) {
        let statement = AssertSqlSafe(statement.to_owned());
        self.session().await.execute(statement).await.unwrap();
    }

    fn keys(&self) -> redis::Connection {
        redis::Client::open(self.redis.url.as_str()).unwrap().get_connection().unwrap()
    }

    async fn databases(&self) -> Vec<String> {
        let names = "select datname::text from pg_database where not datistemplate order by 1";
        sqlx::query_scalar(names).fetch_all(&mut self.session().await).await.unwrap()
    }

    /// Everything that somebody has: relations, rows with their versions, roles, databases,
    /// settings of roles and of the server; keys with their values.
    async fn contents(&self) -> (Vec<String>, Vec<(String, String)>) {
        let query = "select concat_ws(' ', relnamespace::regnamespace, relname, xmin, relacl)
               from pg_class where relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
             union all select concat_ws(' ', xmin, ctid, items.*) from items
             union all select concat_ws(' ', nspname, nspacl) from pg_namespace
              where nspname !~ '^pg_temp'
             union all select pg_roles::text from pg_roles
             union all select concat_ws(' ', datname, datdba, datacl,
                                        shobj_description(oid, 'pg_database')) from pg_database
             union all select setting::text from pg_db_role_setting setting
             union all select concat_ws(' ', name, setting) from pg_settings
              where source = 'configuration file'
             order by 1";
        let rows: Vec<String> =
            sqlx::query_scalar(query).fetch_all(&mut self.session().await).await.unwrap();

        let mut connection = self.keys();
        let mut names: Vec<String> = connection.keys("*").unwrap();
        names.sort();
        let values = names.iter().map(|name| connection.get(name).unwrap());
        let values: Vec<String> = values.collect();
        let keys = names.into_iter().zip(values).collect();
        (rows, keys)
    }

    fn bench(&self, arguments: &[&str], database_url: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["bench", "--on-your-servers"]).args(SHORT).args(arguments);
        command.env("DATABASE_URL", database_url).env("REDIS_URL", &self.redis.url);
        command.env_remove("REDLOCK_URLS").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts one that runs until it gets a signal, and waits for its first run. Returns what it
    /// has said until then.
    async fn start_long(&self) -> (Child, String) {
        let url = self.url("staging", "pw");
        let mut child =
            self.bench(&["--rounds", "100", "--only", "batched"], &url).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while !said.contains("round 1/") {
            let line = timeout(LIMIT, lines.next_line()).await.expect("it runs").unwrap();
            said += &(line.unwrap_or_else(|| panic!("it ended: {said}")) + "\n");
        }
        (child, said)
    }

    async fn stop(self) {
        self.postgres.stop().await;
        drop(self.folder);
    }
}

async fn run(mut command: Command) -> Output {
    timeout(LIMIT, command.output()).await.expect("it ends").unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The name of the database that a benchmark has made, from its output.
fn database(said: &str) -> String {
    let rest = said.split_once("creating the database ").expect("its name is printed").1;
    rest.split_once(" …").expect("its name is printed").0.to_owned()
}

fn signal(child: &Child, signal: Signal) {
    let id = child.id().unwrap().try_into().unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn servers_of_somebody_are_measured_and_left_as_they_were() {
    let _machine = share_machine();
    let staging = Staging::start().await;
    let before = staging.contents().await;
    let json = tempfile::NamedTempFile::new().unwrap();
    let arguments = ["--only", "redlock,owner,batched", "--pool-size", "5", "--json"];
    let mut command = staging.bench(&arguments, &staging.url("staging", "pw"));
    command.arg(json.path());
    let output = run(command).await;
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(staging.contents().await, before);

    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("Left out: redlock: it needs REDLOCK_URLS"), "{table}");
    assert!(table.contains("Each replica has 5 connections"), "{table}");
    let results: Value = serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap();
    let yours = &results["machine"]["yours"];
    assert!(yours["postgres_ms"].as_f64().unwrap() > 0.0, "{yours}");
    assert!(yours["redis_ms"].as_f64().unwrap() > 0.0, "{yours}");
    assert_eq!(yours["fsync"], "off");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3, "owner, batched and the no-op: {runs:#?}");
    for run in runs {
        assert!(run["per_second"]["median"].as_f64().unwrap() > 0.0, "{run:#}");
        assert!(run["redis_reads"].is_null(), "others use this Redis, too: {run:#}");
    }
    staging.stop().await;
}

#[tokio::test]
async fn next_benchmark_says_what_a_killed_one_has_left() {
    let _machine = share_machine();
    let staging = Staging::start().await;
    let (mut killed, said_by_killed) = staging.start_long().await;
    let left = database(&said_by_killed);
    signal(&killed, Signal::KILL);
    killed.wait().await.unwrap();

    let (mut next, said) = staging.start_long().await;
    let remedies =
        [format!("drop database \"{left}\" with (force)"), format!("'holdfast:{left}:*'")];
    assert!(remedies.iter().all(|remedy| said.contains(remedy)), "{said}");
    signal(&next, Signal::INT);
    assert!(!timeout(LIMIT, next.wait()).await.expect("it ends").unwrap().success());
    let databases = staging.databases().await;
    assert!(databases.contains(&left), "nobody has dropped it: {databases:?}");
    assert!(
        !databases.contains(&database(&said)),
        "an interrupted one leaves nothing: {databases:?}"
    );
    staging.stop().await;
}

#[tokio::test]
async fn servers_that_do_not_suffice_are_refused_with_the_remedy() {
    let _machine = share_machine();
    let staging = Staging::start().await;
    staging.execute("create role guest login password 'pw'").await;
    staging.execute("create role \"Few\" login createdb connection limit 20 password 'pw'").await;
    let before = staging.contents().await;

    let same = "REDLOCK_URLS=";
    let refusals: [(&str, &str, &[&str], &str, &str); 7] = [
        ("guest", "pw", &[], same, "grants it with: alter role guest createdb"),
        ("Few", "pw", &[], same, "Use --pool-size 1, or raise max_connections"),
        ("staging", "wrong", &[], same, "Correct the user and the password in DATABASE_URL"),
        ("staging", "pw", &[], "REDLOCK_URLS=redis://a,redis://b", "three or five"),
        ("staging", "pw", &["--only", "redlock"], same, "no strategy is left to measure"),
        ("staging", "pw", &["--json", "/nonexistent/x"], same, "can't write /nonexistent/x"),
        ("staging", "pw", &[], "REDIS_URL=redis://127.0.0.1:1", "Redis does not answer"),
    ];
    for (user, password, arguments, variable, remedy) in refusals {
        let mut command = staging.bench(arguments, &staging.url(user, password));
        command.envs(variable.split_once('='));
        let output = run(command).await;
        let said = said(&output);
        assert!(!output.status.success() && said.contains(remedy), "{user} {arguments:?}: {said}");
        assert!(!said.contains("creating the database"), "{said}");
    }

    let _: () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory-policy", "allkeys-lru"])
        .query(&mut staging.keys())
        .unwrap();
    let output = run(staging.bench(&[], &staging.url("staging", "pw"))).await;
    assert!(said(&output).contains("maxmemory-policy allkeys-lru"), "{}", said(&output));
    assert_eq!(staging.contents().await, before);
    staging.stop().await;
}

/// Its tables would else be made, and emptied, in somebody's database.
#[tokio::test]
async fn pooler_that_leads_to_another_database_is_refused() {
    let _machine = share_machine();
    let staging = Staging::start().await;
    staging.execute("create database shop owner staging").await;
    staging.execute("alter role staging reset search_path").await;
    let target = "port=5432 user=staging password=pw dbname=shop";
    let folder = staging.postgres.socket().parent().unwrap().to_owned();
    let Some(pooler) = Pooler::start(&folder, target, "pool_mode = session") else {
        return staging.stop().await;
    };
    let before = staging.contents().await;

    let output = run(staging.bench(&["--only", "batched"], &pooler.url("holdfast"))).await;
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("leads to another database than it names"), "{said}");
    assert_eq!(staging.contents().await, before);
    let url = staging.url("staging", "pw").replace("///holdfast?", "///shop?");
    let mut shop = PgConnection::connect(&url).await.unwrap();
    let tables = "select count(*) from pg_tables where tableowner = 'staging'";
    let tables: i64 = sqlx::query_scalar(tables).fetch_one(&mut shop).await.unwrap();
    assert_eq!(tables, 0, "it is still empty");
    staging.stop().await;
}

/// Nothing is stored in the database that the address names.
#[tokio::test]
async fn address_may_name_a_database_of_another_encoding() {
    let _machine = share_machine();
    let staging = Staging::start().await;
    let create = "create database ascii encoding 'SQL_ASCII' locale 'C' template template0";
    staging.execute(create).await;
    let before = staging.contents().await;

    let url = staging.url("staging", "pw").replace("///holdfast?", "///ascii?");
    let output = run(staging.bench(&["--only", "batched"], &url)).await;
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(staging.contents().await, before);
    staging.stop().await;
}
