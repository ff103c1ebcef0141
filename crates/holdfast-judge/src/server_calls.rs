//! Calls of Redis and Postgres that an adapter asks its worker for, over the pipe of the protocol:
//! for one that has no client library.
//!
//! Each call in flight has a connection for itself, to the addresses of `init`, so a fault strikes
//! it as it strikes a client in the adapter. The cancellation of a request closes the connections
//! of its calls. Tested with the helpers of the course: `script/test-course`, and below.

use std::collections::HashMap;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, Value, cmd};
use serde_json::{Value as Json, json};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, ValueRef as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::protocol::{AdapterCall, ServerOp};

/// Longer than any request may take that waits for a reply.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct ServerCalls {
    redis: redis::Client,
    postgres: PgConnectOptions,
    idle_redis: Mutex<Vec<MultiplexedConnection>>,
    idle_postgres: Mutex<Vec<PgConnection>>,
    /// The calls in flight, by their numbers.
    running: Mutex<HashMap<u64, RunningCall>>,
    /// To the adapter.
    lines: mpsc::UnboundedSender<String>,
}

#[derive(Debug)]
struct RunningCall {
    /// The request of the judge in which the adapter makes it.
    request: Option<u64>,
    task: JoinHandle<()>,
}

/// Why a call has no value.
#[derive(Debug)]
enum CallError {
    /// The server's own words.
    Refused(String),
    /// There is no connection, or it has broken.
    Away(String),
}

impl ServerCalls {
    pub(super) fn new(
        redis_url: &str,
        database_url: &str,
        lines: mpsc::UnboundedSender<String>,
    ) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            redis: redis::Client::open(redis_url)?,
            postgres: PgConnectOptions::from_str(database_url)?.disable_statement_logging(),
            idle_redis: Mutex::default(),
            idle_postgres: Mutex::default(),
            running: Mutex::default(),
            lines,
        }))
    }

    /// Begins a call, whose reply goes to the adapter.
    pub(super) fn begin(self: &Arc<Self>, call: AdapterCall) {
        let AdapterCall { call: number, request, op } = call;
        let calls = Arc::clone(self);

        // Held until the call is in it: it may end at once.
        let mut running = self.running.lock();
        let task = tokio::spawn(async move {
            let result = calls.perform(&op).await;
            if calls.running.lock().remove(&number).is_some() {
                calls.reply(number, result);
            }
        });
        running.insert(number, RunningCall { request, task });
    }

    /// Closes the connections of a request's calls.
    pub(super) async fn close(&self, request: u64) {
        let closed: Vec<(u64, RunningCall)> =
            self.running.lock().extract_if(|_, call| call.request == Some(request)).collect();

        for (number, call) in closed {
            call.task.abort();
            // The adapter's next call may only begin when this connection is closed.
            let _ = call.task.await;
            self.reply(number, Err(CallError::Away("the request was cancelled".to_owned())));
        }
    }

    fn reply(&self, call: u64, result: Result<Json, CallError>) {
        let (name, said) = match result {
            Ok(value) => ("value", value),
            Err(CallError::Refused(words)) => ("error", words.into()),
            Err(CallError::Away(why)) => ("away", why.into()),
        };
        let reply = json!({ "op": "reply", "call": call, (name): said });
        // A closed pipe is reported elsewhere.
        let _ = self.lines.send(format!("{reply}\n"));
    }

    async fn perform(&self, op: &ServerOp) -> Result<Json, CallError> {
        let performing = async {
            match op {
                ServerOp::Redis { words } => self.call_redis(words).await,
                ServerOp::Postgres { sql } => self.call_postgres(sql).await,
            }
        };
        let late = || CallError::Away(format!("no reply within {} s", CALL_TIMEOUT.as_secs()));
        timeout(CALL_TIMEOUT, performing).await.unwrap_or_else(|_| Err(late()))
    }

    async fn call_redis(&self, words: &[String]) -> Result<Json, CallError> {
        let Some((name, arguments)) = words.split_first() else {
            return Err(CallError::Refused("ERR a command has a name".to_owned()));
        };
        let mut command = cmd(name);
        command.arg(arguments);

        let idle = self.idle_redis.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect_redis().await.map_err(of_redis)?,
        };
        let result = match connection.send_packed_command(&command).await {
            Ok(value) => to_json(value),
            Err(error) => Err(of_redis(error)),
        };
        keep(&self.idle_redis, connection, &result);
        result
    }

    async fn connect_redis(&self) -> Result<MultiplexedConnection, RedisError> {
        // One limit for the call as a whole: a reply to BLPOP may take long.
        let patient =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        self.redis.get_multiplexed_async_connection_with_config(&patient).await
    }

    /// Returns the first value of the first row.
    async fn call_postgres(&self, sql: &str) -> Result<Json, CallError> {
        let idle = self.idle_postgres.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.postgres.connect().await.map_err(of_postgres)?,
        };
        let result = first_value(&mut connection, sql).await.map_err(of_postgres);
        keep(&self.idle_postgres, connection, &result);
        result
    }
}

/// Keeps a connection for the next call. One that has broken takes the other idle ones along: they
/// are of the same server.
fn keep<C>(idle: &Mutex<Vec<C>>, connection: C, result: &Result<Json, CallError>) {
    match result {
        Err(CallError::Away(_)) => idle.lock().clear(),
        _ => idle.lock().push(connection),
    }
}

/// Executes the statements to their end.
async fn first_value(connection: &mut PgConnection, sql: &str) -> Result<Json, sqlx::Error> {
    // From the adapter, which also has the address and the password.
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let Some(row) = rows.first().filter(|row| !row.is_empty()) else { return Ok(Json::Null) };
    let value = row.try_get_raw(0)?;
    if value.is_null() {
        return Ok(Json::Null);
    }
    // The simple protocol has text only.
    let text = value.as_str().map_err(sqlx::Error::Decode)?;
    Ok(text.into())
}

fn of_postgres(error: sqlx::Error) -> CallError {
    match error {
        sqlx::Error::Database(error) => CallError::Refused(error.message().to_owned()),
        other => CallError::Away(other.to_string()),
    }
}

fn of_redis(error: RedisError) -> CallError {
    match error.code() {
        Some(code) => CallError::Refused(words_of(code, error.detail())),
        None => CallError::Away(error.to_string()),
    }
}

/// Puts together what the client library has split.
fn words_of(code: &str, detail: Option<&str>) -> String {
    [Some(code), detail].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn to_json(value: Value) -> Result<Json, CallError> {
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Int(number) => number.into(),
        Value::Okay => "OK".into(),
        Value::SimpleString(text) => text.into(),
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into(),
        Value::Array(values) => {
            Json::Array(values.into_iter().map(to_json).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => {
            return Err(CallError::Refused(words_of(error.code(), error.details())));
        }
        // Not of the version of the protocol that is spoken here.
        other => return Err(CallError::Away(format!("a reply of an unknown kind: {other:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use holdfast_services::{TempFolder, TempPostgres, TempRedis};

    use super::*;

    struct TestAdapter {
        calls: Arc<ServerCalls>,
        replies: mpsc::UnboundedReceiver<String>,
    }

    impl TestAdapter {
        fn new(redis_url: &str, database_url: &str) -> Self {
            let (lines, replies) = mpsc::unbounded_channel();
            Self { calls: ServerCalls::new(redis_url, database_url, lines).unwrap(), replies }
        }

        fn begin(&self, call: Json) {
            self.calls.begin(serde_json::from_value(call).unwrap());
        }

        async fn reply(&mut self) -> Json {
            serde_json::from_str(&self.replies.recv().await.unwrap()).unwrap()
        }

        async fn redis(&mut self, words: &[&str]) -> Json {
            self.begin(json!({ "op": "redis", "call": 9, "words": words }));
            self.reply().await["value"].take()
        }

        async fn wait_for_blocked(&mut self, clients: u32) {
            let wanted = format!("blocked_clients:{clients}\r");
            while !self.redis(&["INFO", "clients"]).await.as_str().unwrap().contains(&wanted) {}
        }
    }

    const NOWHERE: [&str; 2] = ["redis://:x@127.0.0.1:1/0", "postgres://x:x@127.0.0.1:1/x"];

    #[tokio::test]
    async fn replies_are_those_of_the_servers() {
        let folder = TempFolder::create().unwrap();
        let (redis, postgres) = (TempRedis::start().await, TempPostgres::start(&folder).await);
        let (redis, postgres) = (redis.unwrap(), postgres.unwrap());
        let mut adapter = TestAdapter::new(&redis.url, &postgres.url());

        let eval = "return {1, 'a', {redis.call('get', 'no key')}, redis.status_reply('OK')}";
        let cases = [
            (json!({ "op": "redis", "words": ["SET", "a", "\u{e9}\n"] }), json!({ "value": "OK" })),
            (json!({ "op": "redis", "words": ["GET", "a"] }), json!({ "value": "\u{e9}\n" })),
            (
                json!({ "op": "redis", "words": ["EVAL", eval, "0"] }),
                json!({ "value": [1, "a", [null], "OK"] }),
            ),
            (
                json!({ "op": "redis", "words": ["INCR", "a"] }),
                json!({ "error": "ERR value is not an integer or out of range" }),
            ),
            (
                json!({ "op": "redis", "words": ["LPUSH", "a", "1"] }),
                json!({
                    "error": "WRONGTYPE Operation against a key holding the wrong kind of value"
                }),
            ),
            (json!({ "op": "postgres", "sql": "select 7, 8; select 9" }), json!({ "value": "7" })),
            (json!({ "op": "postgres", "sql": "select null" }), json!({ "value": null })),
            (
                json!({ "op": "postgres", "sql": "select nextval('none')" }),
                json!({ "error": "relation \"none\" does not exist" }),
            ),
            (json!({ "op": "postgres", "sql": "select true" }), json!({ "value": "t" })),
        ];
        for (mut call, mut expected) in cases {
            call["call"] = json!(5);
            adapter.begin(call);
            expected["op"] = json!("reply");
            expected["call"] = json!(5);
            assert_eq!(adapter.reply().await, expected);
        }
    }

    #[tokio::test]
    async fn cancelled_call_takes_nothing() {
        let redis = TempRedis::start().await.unwrap();
        let mut adapter = TestAdapter::new(&redis.url, NOWHERE[1]);
        for call in 1..=2 {
            let words = ["BLPOP", "list", "0"];
            adapter.begin(json!({ "op": "redis", "call": call, "request": call, "words": words }));
        }
        adapter.wait_for_blocked(2).await;

        adapter.calls.close(1).await;
        let closed = adapter.reply().await;
        assert_eq!((&closed["call"], closed["away"].is_string()), (&json!(1), true), "{closed}");
        adapter.wait_for_blocked(1).await;

        // The other one waits longest by now.
        adapter.begin(json!({ "op": "redis", "call": 3, "words": ["RPUSH", "list", "x", "y"] }));
        let replies = [adapter.reply().await, adapter.reply().await];
        let popped = replies.iter().find(|reply| reply["call"] == 2).unwrap();
        assert_eq!(popped["value"], json!(["list", "x"]));
        assert_eq!(adapter.redis(&["LLEN", "list"]).await, 1);
    }

    #[tokio::test]
    async fn server_that_is_gone_is_away() {
        let mut adapter = TestAdapter::new(NOWHERE[0], NOWHERE[1]);
        for op in
            [json!({ "op": "redis", "words": ["PING"] }), json!({ "op": "postgres", "sql": "" })]
        {
            let mut call = op;
            call["call"] = json!(1);
            adapter.begin(call);
            let reply = adapter.reply().await;
            assert!(reply["away"].is_string(), "{reply}");
        }
    }
}
