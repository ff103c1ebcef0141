//! What a watched proxy before a real Postgres sees of its clients.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::*;
use crate::{Proxy, TempFolder, TempPostgres, Upstream};

const SYNC: &[u8] = b"S\0\0\0\x04";
const FLUSH: &[u8] = b"H\0\0\0\x04";
const COPY_DONE: &[u8] = b"c\0\0\0\x04";
/// Its length, version 3.0, and the parameters.
const STARTUP: &[u8] = b"\0\0\0\x29\0\x03\0\0user\0holdfast\0database\0holdfast\0\0";

#[derive(Debug, Default)]
struct AnswerLog {
    answered: Mutex<Vec<Exchange>>,
    /// Learns that `HELD` is held, and decides whether it goes on.
    holding: Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<bool>)>>,
}

const HELD: &str = "insert into tea values (2)";

impl Watcher for AnswerLog {
    fn sent(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, bool> {
        let mut statements = exchanges.iter().flat_map(|exchange| &exchange.statements);
        let is_held = statements.any(|statement| &*statement.text == HELD);
        let holding = is_held.then(|| self.holding.lock().take()).flatten();
        Box::pin(async {
            let Some((held, decision)) = holding else { return true };
            held.send(()).unwrap();
            decision.await.unwrap()
        })
    }

    fn answered(&self, exchange: Exchange) -> BoxFuture<'_, bool> {
        self.answered.lock().push(exchange);
        Box::pin(ready(true))
    }
}

struct Watched {
    log: Arc<AnswerLog>,
    proxy: Proxy,
    postgres: TempPostgres,
    folder: TempFolder,
}

impl Watched {
    async fn start() -> Self {
        let folder = TempFolder::create().unwrap();
        let postgres = TempPostgres::start(&folder).await.unwrap();
        let log = Arc::<AnswerLog>::default();
        let watcher = Arc::clone(&log);
        let proxy = Proxy::watched(Upstream::Socket(postgres.socket()), watcher).await.unwrap();
        Self { log, proxy, postgres, folder }
    }

    async fn client(&self) -> PgConnection {
        let (password, port) = (&self.postgres.password, self.proxy.port);
        let url = format!("postgres://holdfast:{password}@127.0.0.1:{port}/holdfast");
        PgConnection::connect(&url).await.unwrap()
    }

    async fn open(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.proxy.port)).await.unwrap()
    }

    /// Returns the exchanges with statements since the last call.
    fn take(&self) -> Vec<Exchange> {
        let mut exchanges = std::mem::take(&mut *self.log.answered.lock());
        exchanges.retain(|exchange| !exchange.statements.is_empty());
        exchanges
    }

    /// Returns the only statement since the last call.
    fn take_statement(&self) -> Statement {
        let mut statements: Vec<_> = self.take().into_iter().flat_map(|it| it.statements).collect();
        assert_eq!(statements.len(), 1, "{statements:?}");
        statements.remove(0)
    }

    async fn stop(self) {
        self.postgres.stop().await;
        drop(self.folder);
    }
}

/// A client that writes its messages by hand.
struct Raw {
    stream: TcpStream,
    /// Its process and its key, for a cancellation.
    key: Vec<u8>,
}

impl Raw {
    /// Signs in once the server lets everybody in: this client can't prove a password.
    async fn sign_in(watched: &Watched) -> Self {
        std::fs::write(&watched.postgres.access_rules, "local all all trust\n").unwrap();
        watched.client().await.execute("select pg_reload_conf()").await.unwrap();
        loop {
            let mut raw = Self { stream: watched.open().await, key: Vec::new() };
            raw.send(&[STARTUP]).await;
            if raw.read().await == (b'R', vec![0; 4]) {
                raw.key = raw.read_to(b'K').await;
                raw.read_to(b'Z').await;
                watched.take();
                return raw;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn send(&mut self, messages: &[&[u8]]) {
        self.stream.write_all(&messages.concat()).await.unwrap();
    }

    /// Returns the type and the content of the next message.
    async fn read(&mut self) -> (u8, Vec<u8>) {
        let reading = async {
            let kind = self.stream.read_u8().await?;
            let length = self.stream.read_u32().await? as usize;
            let mut body = vec![0; length - size_of::<u32>()];
            self.stream.read_exact(&mut body).await?;
            io::Result::Ok((kind, body))
        };
        timeout(Duration::from_secs(20), reading).await.expect("an answer").unwrap()
    }

    async fn read_to(&mut self, wanted: u8) -> Vec<u8> {
        loop {
            let (kind, body) = self.read().await;
            if kind == wanted {
                return body;
            }
        }
    }
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = (size_of::<u32>() + body.len()) as u32;
    [&[kind][..], &length.to_be_bytes(), &body].concat()
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"])
}

/// Parse, Bind, Describe and Execute, without names.
fn execute(text: &str) -> Vec<u8> {
    let parse = message(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"]);
    let bind = message(b'B', &[b"\0\0", &[0; 6]]);
    [parse, bind, message(b'D', &[b"P\0"]), message(b'E', &[&[0; 5]])].concat()
}

fn column(name: &str, value: &str) -> Vec<(String, Option<String>)> {
    vec![(name.to_owned(), Some(value.to_owned()))]
}

#[test]
fn messages_are_found_however_they_are_cut() {
    let long = message(b'd', &[&vec![7; MAX_KEPT]]);
    let text = [query("select 1"), long, SYNC.to_vec(), query("select 2")].concat();
    for size in [1, 2, 4, 5, 6, 7, 1_000, text.len()] {
        let mut messages = Messages::default();
        let mut received = Vec::new();
        for mut chunk in text.chunks(size) {
            while let Some(message) = messages.next(&mut chunk) {
                received.push((message.kind, message.bytes.len()));
            }
        }
        assert_eq!(received, [(b'Q', 14), (b'd', 0), (b'S', 5), (b'Q', 14)], "{size}");
    }
}

#[tokio::test]
async fn statements_are_seen_with_values_and_answers() {
    let watched = Watched::start().await;
    let mut client = watched.client().await;
    client.execute("create table tea (id int8, name text)").await.unwrap();
    assert_eq!(watched.take_statement().tag.as_deref(), Some("CREATE TABLE"));

    // The second one is prepared already.
    for _ in 0..2 {
        let insert = sqlx::query("insert into tea values ($1, $2)").bind(7_i64).bind("oolong");
        insert.execute(&mut client).await.unwrap();
        let inserted = watched.take_statement();
        assert_eq!(&*inserted.text, "insert into tea values ($1, $2)");
        assert_eq!(inserted.values, ["7", "oolong"].map(|it| Some(it.to_owned())));
        assert_eq!((inserted.tag.as_deref(), inserted.row.len()), (Some("INSERT 0 1"), 0));
    }
    let read = sqlx::query("select id, null as name from tea where id > 0 or $1");
    read.bind(None::<bool>).fetch_all(&mut client).await.unwrap();
    let read = watched.take_statement();
    assert_eq!((read.values, read.tag.as_deref()), (vec![None], Some("SELECT 2")));
    assert_eq!(read.row, [column("id", "7"), vec![("name".to_owned(), None)]].concat());

    sqlx::query("select 1 / $1").bind(0).execute(&mut client).await.unwrap_err();
    // The error may arrive before the end of the exchange.
    client.ping().await.unwrap();
    let wrong = watched.take_statement();
    assert_eq!((wrong.error.as_deref(), wrong.tag), (Some("division by zero"), None));

    // Several in one text are one.
    let several = "begin; select 1 as one; update tea set name = 'green'";
    sqlx::raw_sql(several).execute(&mut client).await.unwrap();
    let exchanges = watched.take();
    let [exchange] = &exchanges[..] else { panic!("{exchanges:?}") };
    assert!(exchange.in_transaction && exchange.sent_us <= exchange.answered_us, "{exchange:?}");
    let [statement] = &exchange.statements[..] else { panic!("{exchange:?}") };
    assert_eq!((&*statement.text, statement.tag.as_deref()), (several, Some("UPDATE 2")));
    assert_eq!(statement.row, column("one", "1"));
    client.execute("commit").await.unwrap();
    assert!(!watched.take()[0].in_transaction);

    // One that is too long does not get the text and the values of another one.
    let long = sqlx::query("select length($1) as long").bind("x".repeat(MAX_KEPT));
    long.fetch_one(&mut client).await.unwrap();
    let long = watched.take_statement();
    assert_eq!((&*long.text, long.values.len(), long.row.len()), ("", 0, 0));
    assert_eq!(long.tag.as_deref(), Some("SELECT 1"));
    sqlx::query("select $1 as short").bind("x").fetch_one(&mut client).await.unwrap();
    assert_eq!(watched.take_statement().row, column("short", "x"));
    watched.stop().await;
}

/// Each answer goes to its statement, also of many that a client sends at once.
#[tokio::test]
async fn pipelines_and_copies_keep_their_order() {
    let watched = Watched::start().await;
    let mut raw = Raw::sign_in(&watched).await;
    raw.send(&[&query("create table tea (id int, name text)")]).await;
    raw.read_to(b'Z').await;
    assert_eq!(watched.take_statement().tag.as_deref(), Some("CREATE TABLE"));

    let failing = [execute("select 1 / 0"), execute("select 2")].concat();
    let (first, last) = (execute("select 1 as one"), execute("select 3 as three"));
    raw.send(&[&first, SYNC, &failing, SYNC, &last, SYNC]).await;
    for _ in 0..3 {
        raw.read_to(b'Z').await;
    }
    let exchanges = watched.take();
    let [first, failed, last] = &exchanges[..] else { panic!("{exchanges:?}") };
    assert_eq!(first.statements[0].row, column("one", "1"));
    assert_eq!(failed.statements[0].error.as_deref(), Some("division by zero"));
    assert_eq!(failed.statements[1].tag, None);
    assert_eq!(last.statements[0].row, column("three", "3"));

    let (simple, extended) = (query("copy tea from stdin"), execute("copy tea from stdin"));
    let data = message(b'd', &[b"1\tgreen\n"]);
    let fail = message(b'f', &[b"no more\0"]);
    // What is sent before the server asks for data, and after it.
    type Way<'a> = (&'a [&'a [u8]], &'a [&'a [u8]], Option<&'a str>);
    let ways: [Way<'_>; 5] = [
        (&[&simple], &[&data, COPY_DONE], Some("COPY 1")),
        (&[&extended, SYNC], &[&data, COPY_DONE, SYNC], Some("COPY 1")),
        (&[&extended, FLUSH], &[&data, COPY_DONE, SYNC], Some("COPY 1")),
        (&[&extended, SYNC, &data, COPY_DONE, SYNC], &[], Some("COPY 1")),
        (&[&extended, SYNC], &[&fail, SYNC], None),
    ];
    for (number, (before, after, tag)) in ways.into_iter().enumerate() {
        raw.send(before).await;
        raw.read_to(b'G').await;
        raw.send(after).await;
        raw.read_to(b'Z').await;
        raw.send(&[&execute("select 4 as four"), SYNC]).await;
        raw.read_to(b'Z').await;
        let exchanges = watched.take();
        let [copied, next] = &exchanges[..] else { panic!("{number}: {exchanges:?}") };
        let copied = &copied.statements[0];
        assert_eq!((copied.tag.as_deref(), copied.error.is_none()), (tag, tag.is_some()));
        assert_eq!(next.statements[0].row, column("four", "4"), "{number}");
    }
    watched.stop().await;
}

#[tokio::test]
async fn request_is_held_and_may_never_arrive() {
    let watched = Watched::start().await;
    let mut client = watched.client().await;
    client.execute("create table tea (id int)").await.unwrap();
    let mut count = async || {
        let count = sqlx::query_scalar::<_, i64>("select count(*) from tea");
        count.fetch_one(&mut client).await.unwrap()
    };

    let mut raw = Raw::sign_in(&watched).await;
    let (simple, extended) = (query(HELD), [execute(HELD), SYNC.to_vec()].concat());
    for (request, goes_on) in [(&simple, true), (&extended, true), (&simple, false)] {
        let before = count().await;
        let ((hold, held), (decide, decision)) = (oneshot::channel(), oneshot::channel());
        *watched.log.holding.lock() = Some((hold, decision));
        raw.send(&[request]).await;
        held.await.unwrap();
        assert_eq!(count().await, before);

        decide.send(goes_on).unwrap();
        if goes_on {
            raw.read_to(b'Z').await;
        } else {
            assert!(matches!(raw.stream.read(&mut [0; 1]).await, Ok(0) | Err(_)), "it is closed");
        }
        assert_eq!(count().await, before + i64::from(goes_on));
    }
    watched.stop().await;
}

#[tokio::test]
async fn encryption_is_refused_and_cancellation_passes() {
    let watched = Watched::start().await;
    let mut asking = watched.open().await;
    for request in ENCRYPTION_REQUESTS {
        asking.write_all(&[8_u32.to_be_bytes(), request.to_be_bytes()].concat()).await.unwrap();
        assert_eq!(asking.read_u8().await.unwrap(), b'N');
    }
    // A client that begins with TLS does not ask.
    let mut direct = watched.open().await;
    direct.write_all(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").await.unwrap();
    assert!(matches!(direct.read(&mut [0; 1]).await, Ok(0) | Err(_)), "it is closed");

    let mut raw = Raw::sign_in(&watched).await;
    raw.send(&[&query("select pg_sleep(60)")]).await;
    let request = [b"\0\0\0\x10\x04\xd2\x16\x2e", &raw.key[..]].concat();
    {
        let mut ended = pin!(raw.read_to(b'Z'));
        // Again and again, as it may come before the statement.
        while timeout(Duration::from_millis(50), &mut ended).await.is_err() {
            watched.open().await.write_all(&request).await.unwrap();
        }
    }
    let error = watched.take_statement().error;
    assert_eq!(error.as_deref(), Some("canceling statement due to user request"));
    watched.stop().await;
}
