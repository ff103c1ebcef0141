//! The errors of a command that cannot use its Postgres: the cause, and what to do.

use std::path::PathBuf;

use holdfast_services::{TempFolder, TempPostgres};
use holdfast_testkit::ports::free_ports;
use holdfast_testkit::run_program;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// The commands that connect to Postgres.
const COMMANDS: [&[&str]; 4] = [&["serve"], &["migrate"], &["audit"], &["user", "add", "ann"]];

/// A Postgres that requires passwords and admits only the roles in its `pg_hba.conf`.
struct Server {
    postgres: TempPostgres,
    _folder: TempFolder,
}

impl Server {
    async fn start() -> Self {
        let folder = TempFolder::create().unwrap();
        let postgres = TempPostgres::start(&folder).await.unwrap();
        Self { postgres, _folder: folder }
    }

    fn folder(&self) -> PathBuf {
        self.postgres.socket().parent().unwrap().to_owned()
    }

    fn url(&self, user: &str, database: &str, password: &str) -> String {
        let folder = self.folder().display().to_string();
        format!("postgres:///{database}?host={folder}&port=5432&user={user}&password={password}")
    }

    fn owner_url(&self) -> String {
        self.url("holdfast", "holdfast", &self.postgres.password)
    }

    async fn execute(&self, statements: &str) {
        let mut connection = PgConnection::connect(&self.owner_url()).await.unwrap();
        // One by one: a database can't be created among others.
        for statement in statements.split(';') {
            connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
        }
        connection.close().await.unwrap();
    }
}

/// Runs a command that must fail. Returns its stderr.
fn failure_of(arguments: &[&str], database_url: &str) -> String {
    let output = run_program(
        arguments,
        &[
            ("DATABASE_URL", database_url),
            ("REDIS_URL", "redis://127.0.0.1:1"),
            ("HOLDFAST_LISTEN", "127.0.0.1:0"),
            ("HOLDFAST_PASSWORD", "a long password"),
        ],
    );
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Asserts that each command names the cause and the remedy, and reports no timeout.
fn assert_all_commands_report(database_url: &str, parts: &[&str]) {
    for arguments in COMMANDS {
        let text = failure_of(arguments, database_url);
        assert!(parts.iter().all(|part| text.contains(part)), "{arguments:?} {parts:?}: {text}");
        assert!(!text.contains("does not respond"), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn refused_connections_name_their_cause() {
    let server = Server::start().await;
    server
        .execute(
            "create role many login password 'secret' connection limit 0;
             create role barred login password 'secret';
             create role idle nologin password 'secret';
             create database closed;
             revoke connect on database closed from public",
        )
        .await;
    let rules = "local all holdfast,many,barred,idle,missing scram-sha-256\n";
    std::fs::write(&server.postgres.access_rules, rules).unwrap();
    server.execute("select pg_reload_conf()").await;

    let wrong_login = "Correct the user and the password in DATABASE_URL";
    for (user, database, cause, advice) in [
        ("holdfast", "holdfast", "password authentication failed", wrong_login),
        ("missing", "holdfast", "password authentication failed", wrong_login),
        ("idle", "holdfast", "not permitted to log in", "alter role"),
        ("barred", "missing", "does not exist", "Create the database"),
        ("unlisted", "holdfast", "no pg_hba.conf entry", "add a line"),
        ("many", "holdfast", "too many connections for role", "HOLDFAST_POOL_SIZE"),
        ("barred", "closed", "permission denied for database", "Grant it"),
    ] {
        let password = if user == "holdfast" { "wrong" } else { "secret" };
        assert_all_commands_report(&server.url(user, database, password), &[cause, advice]);
    }
    server.postgres.stop().await;
}

#[tokio::test]
async fn missing_rights_on_tables_are_named() {
    let server = Server::start().await;
    let migrate = run_program(&["migrate"], &[("DATABASE_URL", &server.owner_url())]);
    assert!(migrate.status.success(), "{migrate:?}");
    server.execute("create role reader login password 'secret'").await;
    let url = server.url("reader", "holdfast", "secret");
    for arguments in COMMANDS {
        let text = failure_of(arguments, &url);
        assert!(text.contains("permission denied") && text.contains("Grant it"), "{text}");
        assert!(!text.contains("no tables of Holdfast") && !text.contains("bug"), "{text}");
    }

    server.execute("grant select on all tables in schema public to reader").await;
    let text = failure_of(&["audit"], &url);
    assert!(text.contains("select on admin_log_seq_seq") && text.contains("Grant it"), "{text}");
    server.execute("grant select on all sequences in schema public to reader").await;
    let audit = run_program(&["audit"], &[("DATABASE_URL", &url)]);
    assert!(audit.status.success(), "{audit:?}");

    for arguments in [COMMANDS[0], COMMANDS[3]] {
        let text = failure_of(arguments, &url);
        assert!(text.contains("accounts") && text.contains("Grant it"), "{arguments:?}: {text}");
    }
    server.postgres.stop().await;
}

/// Responds to the first message of each connection with the given bytes.
async fn respond_always(response: Vec<u8>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut message = [0; 1024];
            let _ = client.read(&mut message).await;
            let _ = client.write_all(&response).await;
            let _ = client.shutdown().await;
        }
    });
    port
}

/// The message with which Postgres rejects a connection.
fn rejection(code: &str, message: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    [b"E", &length[..], fields.as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_serve_are_named() {
    let starting = rejection("57P03", "the database system is starting up");
    let full = rejection("53300", "sorry, too many clients already");
    for (response, parts) in [
        (starting, ["the database system is starting up", "Try again"]),
        (full, ["too many clients already", "max_connections"]),
    ] {
        let port = respond_always(response).await;
        let url = format!("postgres://holdfast@127.0.0.1:{port}/holdfast?sslmode=disable");
        assert_all_commands_report(&url, &parts);
    }
}

#[test]
fn unreachable_server_is_named_with_its_address() {
    let port = free_ports(1);
    let url = format!("postgres://holdfast@127.0.0.1:{port}/holdfast");
    for arguments in COMMANDS {
        let text = failure_of(arguments, &url);
        let address = format!("Postgres does not respond at 127.0.0.1:{port}");
        assert!(text.contains(&address) && text.contains("refused"), "{arguments:?}: {text}");
    }
}
