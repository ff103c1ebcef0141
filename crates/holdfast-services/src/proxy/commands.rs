//! The commands on a connection to Redis, as a proxy sees them pass, with their answers. The bytes
//! are forwarded as they are.
//!
//! An exchange is what a client sends at once. A subscription is none: it has no answer but
//! notices, which come at any time. Nothing more is read of a client that sends a command without
//! lengths, or one that is longer than [`MAX_KEPT`], or that is answered so, or by more than one
//! answer; the watcher learns of that.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use futures_util::future::BoxFuture;
use holdfast_lock::clock::monotonic_us;
use parking_lot::Mutex;
use redis_protocol::error::RedisProtocolError;
use redis_protocol::resp2::decode::{decode, decode_range};
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame as _};
use redis_protocol::resp3::decode::complete;

use super::passing::{Exchange, Passing, ServerKind, Statement, Watcher, tell};

/// The longest command, and the longest answer, that is read.
const MAX_KEPT: usize = 256 << 10;
/// Characters of an answer that the watcher gets.
const MAX_TOLD: usize = 100;
/// Why nothing more is read.
const INLINE: &str = "a command without lengths";
const LONG_COMMAND: &str = "a command of more than 256 KiB";
const LONG_ANSWER: &str = "an answer of more than 256 KiB, or one that is not understood";
const OTHER_ANSWERS: &str = "MONITOR, SYNC, PSYNC or CLIENT REPLY";

/// One connection of a watched link.
#[derive(Debug)]
pub(super) struct CommandConnection {
    watcher: Arc<dyn Watcher>,
    connection: u64,
    state: Mutex<RedisConnectionState>,
}

impl CommandConnection {
    pub(super) fn new(watcher: Arc<dyn Watcher>, connection: u64) -> Self {
        Self { watcher, connection, state: Mutex::default() }
    }

    /// Reads what one side sends; the watcher learns if nothing more can be read.
    fn read<T>(&self, read: impl FnOnce(&mut RedisConnectionState) -> T) -> T {
        let mut state = self.state.lock();
        let was_over = state.over.is_some();
        let result = read(&mut state);
        if let Some(why) = state.over.filter(|_| !was_over) {
            self.watcher.unread(why);
        }
        result
    }
}

impl Drop for CommandConnection {
    fn drop(&mut self) {
        self.watcher.closed(self.connection);
    }
}

impl Passing for CommandConnection {
    fn server(&self) -> ServerKind {
        ServerKind::Redis
    }

    fn request<'a>(&'a self, chunk: &'a [u8]) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let sent = self.read(|state| state.take_requests(self.connection, chunk));
            let Some(exchange) = sent else { return true };
            let goes_on = self.watcher.sent(vec![exchange]).await;

            // It may have been held up.
            if let Some(last) = self.state.lock().exchanges.back_mut() {
                last.sent_us = monotonic_us();
            }
            goes_on
        })
    }

    fn response<'a>(&'a self, chunk: &'a [u8]) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let answered = self.read(|state| state.take_answers(chunk));
            tell(&*self.watcher, answered).await
        })
    }
}

#[derive(Debug, Default)]
struct RedisConnectionState {
    /// The bytes of both sides, from the beginning of a frame that is not complete.
    requests: BytesMut,
    answers: BytesMut,
    /// Number of exchanges that were sent.
    sent: u64,
    /// Those without all their answers, the oldest first.
    exchanges: VecDeque<Exchange>,
    /// Why nothing more is read of what the client sends, if so.
    over: Option<&'static str>,
    /// Notices may come.
    has_subscribed: bool,
}

impl RedisConnectionState {
    /// Reads what the client sends, and returns the commands that end with it.
    fn take_requests(&mut self, connection: u64, chunk: &[u8]) -> Option<Exchange> {
        if self.over.is_some() {
            return None;
        }

        self.requests.extend_from_slice(chunk);
        let mut statements = Vec::new();
        while self.over.is_none() {
            match decode(&self.requests) {
                Ok(Some((OwnedFrame::Array(words), length))) => {
                    self.requests.advance(length);
                    let command = command(&words);
                    let subscribes = command.text.ends_with("SUBSCRIBE");
                    self.has_subscribed |= subscribes;
                    self.over = has_other_answers(&command).then_some(OTHER_ANSWERS);
                    // One without words is not answered.
                    if self.over.is_none() && !subscribes && !words.is_empty() {
                        statements.push(command);
                    }
                }
                Ok(None) if self.requests.len() <= MAX_KEPT => break,
                Ok(None) => self.over = Some(LONG_COMMAND),
                _ => self.over = Some(INLINE),
            }
        }
        if statements.is_empty() {
            return None;
        }

        let exchange = Exchange {
            server: ServerKind::Redis,
            connection,
            number: self.sent,
            statements,
            ..Exchange::default()
        };
        self.sent += 1;
        self.exchanges.push_back(exchange.clone());
        Some(exchange)
    }

    /// Reads what the server sends, and returns the exchanges that end with it.
    fn take_answers(&mut self, chunk: &[u8]) -> Vec<Exchange> {
        let mut answered = Vec::new();
        self.answers.extend_from_slice(chunk);
        while self.over.is_none() || !self.exchanges.is_empty() {
            match answer_length(&self.answers) {
                Ok(Some(length)) => {
                    let answer = self.answers.split_to(length);
                    answered.extend(self.take_answer(&answer));
                }
                Ok(None) if self.answers.len() <= MAX_KEPT => return answered,
                _ => {
                    // Where the next answer begins is not known, and it is not awaited.
                    self.over = self.over.or(Some(LONG_ANSWER));
                    answered.extend(self.exchanges.drain(..));
                }
            }
        }
        self.answers.clear();
        answered
    }

    /// Returns the exchange that an answer ends.
    fn take_answer(&mut self, answer: &[u8]) -> Option<Exchange> {
        // What the server pushes answers nothing. In RESP2 it looks like an answer.
        if answer.starts_with(b">") || (self.has_subscribed && is_notice(answer)) {
            return None;
        }

        let statements = &mut self.exchanges.front_mut()?.statements;
        let mut open = statements.iter_mut().filter(|it| it.tag.is_none() && it.error.is_none());
        note_answer(open.next()?, answer);
        if open.next().is_some() {
            return None;
        }
        let mut exchange = self.exchanges.pop_front()?;
        exchange.answered_us = monotonic_us();
        Some(exchange)
    }
}

/// Returns a command: its name, in upper case, and its arguments.
fn command(words: &[OwnedFrame]) -> Statement {
    let text = |word: &OwnedFrame| {
        let bytes = word.as_bytes()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let mut words = words.iter().map(text);
    let name = words.next().flatten().unwrap_or_default();
    Statement {
        text: name.to_ascii_uppercase().into(),
        values: words.collect(),
        ..Statement::default()
    }
}

/// Returns whether not just one answer comes to a command, or to those behind it.
fn has_other_answers(command: &Statement) -> bool {
    match &*command.text {
        "CLIENT" => {
            let what = command.values.first().and_then(Option::as_deref);
            what.is_some_and(|what| what.eq_ignore_ascii_case("reply"))
        }
        "MONITOR" | "PSYNC" | "SYNC" => true,
        _ => false,
    }
}

/// Returns whether a list is what a client is sent that subscribes.
fn is_notice(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    // After its length, and that of its first text.
    let kind = text.split("\r\n").nth(2).unwrap_or_default();
    let is_message = matches!(kind, "message" | "pmessage" | "smessage");
    text.starts_with('*') && (is_message || kind.ends_with("subscribe"))
}

/// Returns the length of the first answer; `None` as long as it is not complete. In RESP3 it has
/// types of its own; the others are the same in both.
fn answer_length(bytes: &[u8]) -> Result<Option<usize>, RedisProtocolError> {
    if let Ok(read) = decode_range(bytes) {
        return Ok(read.map(|(_, length)| length));
    }
    let read = complete::decode_range(bytes)?;
    Ok(read.map(|(_, length)| length))
}

/// Writes down what a command was answered: a text without its length, of lists only that.
fn note_answer(command: &mut Statement, answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let (head, rest) = text.split_once("\r\n").unwrap_or_default();
    let has_length = head.starts_with(['$', '=', '!']) && !rest.is_empty();
    let told = if has_length { rest } else { head.strip_prefix(['+', '-', ':']).unwrap_or(head) };
    let told = Some(told.trim_end().chars().take(MAX_TOLD).collect());
    if head.starts_with(['-', '!']) {
        command.error = told;
    } else {
        command.tag = told;
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use redis::{Client, cmd, pipe};

    use super::*;
    use crate::{Proxy, TempRedis, Upstream};

    /// The exchanges that were sent, and those that were answered.
    #[derive(Debug, Default)]
    struct ExchangeLog {
        sent: Mutex<Vec<Exchange>>,
        answered: Mutex<Vec<Exchange>>,
        closed: Mutex<Vec<u64>>,
        unread: Mutex<Vec<&'static str>>,
    }

    impl Watcher for ExchangeLog {
        fn sent(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, bool> {
            self.sent.lock().extend(exchanges);
            Box::pin(ready(true))
        }

        fn answered(&self, exchange: Exchange) -> BoxFuture<'_, bool> {
            self.answered.lock().push(exchange);
            Box::pin(ready(true))
        }

        fn closed(&self, connection: u64) {
            self.closed.lock().push(connection);
        }

        fn unread(&self, why: &'static str) {
            self.unread.lock().push(why);
        }
    }

    impl ExchangeLog {
        /// Returns the commands of each exchange since the last call, with what was answered.
        fn take(&self) -> Vec<Vec<String>> {
            let told = |it: &Statement| match (&it.tag, &it.error) {
                (Some(tag), None) => format!("{}: {tag}", it.text),
                other => format!("{}: {other:?}", it.text),
            };
            let answered = std::mem::take(&mut *self.answered.lock());
            answered.iter().map(|it| it.statements.iter().map(told).collect()).collect()
        }
    }

    /// Returns the beginning of a frame that is too long.
    fn long(head: &str) -> Vec<u8> {
        [head.as_bytes(), "x".repeat(MAX_KEPT).as_bytes()].concat()
    }

    #[test]
    fn commands_and_answers_are_found_however_they_are_cut() {
        const SENT: &[u8] =
            b"*3\r\n$3\r\nset\r\n$3\r\ntea\r\n$2\r\n\r\n\r\n*0\r\n*1\r\n$4\r\nPING\r\n";
        const ANSWERS: &[u8] =
            b">2\r\n$10\r\ninvalidate\r\n_\r\n+OK\r\n%1\r\n+one\r\n#t\r\n+PONG\r\n";
        for size in [1, 2, 5, 1_000] {
            let mut state = RedisConnectionState::default();
            let mut sent = Vec::new();
            for chunk in SENT.chunks(size) {
                sent.extend(state.take_requests(7, chunk));
            }
            let commands: Vec<_> = sent.iter().flat_map(|exchange| &exchange.statements).collect();
            let [set, ping] = commands[..] else { panic!("{size}: {sent:?}") };
            assert_eq!((&*set.text, &*ping.text), ("SET", "PING"), "{size}");
            assert_eq!(set.values, ["tea", "\r\n"].map(|it| Some(it.to_owned())), "{size}");
            assert!(sent.iter().all(|exchange| exchange.connection == 7));

            let mut answered = Vec::new();
            for chunk in ANSWERS.chunks(size) {
                answered.extend(state.take_answers(chunk));
            }
            let commands = answered.into_iter().flat_map(|exchange| exchange.statements);
            let tags: Vec<_> = commands.filter_map(|command| command.tag).collect();
            // The last answer is to nothing.
            assert_eq!(tags, ["OK", "%1"], "{size}");
        }
    }

    #[test]
    fn nothing_is_read_after_what_is_not_understood() {
        let get: &[u8] = b"*2\r\n$3\r\nGET\r\n$3\r\ntea\r\n";
        let monitor: &[u8] = b"*1\r\n$7\r\nmonitor\r\n";
        let long_command = long("*1\r\n$300000\r\n");
        let ends: [(&[u8], &str); 3] =
            [(b"PING\r\n", INLINE), (monitor, OTHER_ANSWERS), (&long_command, LONG_COMMAND)];
        for (end, why) in ends {
            let mut state = RedisConnectionState::default();
            let sent = state.take_requests(1, &[get, end].concat()).expect("one command");
            assert_eq!((sent.statements.len(), state.over), (1, Some(why)));
            assert!(state.take_requests(1, get).is_none());
            // What was read before is still answered.
            let answered = state.take_answers(b"$-1\r\n+PONG\r\n");
            assert_eq!(
                (answered.len(), answered[0].statements[0].tag.as_deref()),
                (1, Some("$-1"))
            );
            assert!(state.take_answers(b"*1\r\n$9\r\nsub").is_empty());
        }

        // The end of an answer that is too long is not awaited.
        let mut state = RedisConnectionState::default();
        let sent = state.take_requests(1, get);
        assert_eq!(state.take_answers(&long("$300000\r\n")), Vec::from_iter(sent));
        assert_eq!(state.over, Some(LONG_ANSWER));
    }

    #[tokio::test]
    async fn end_of_the_reading_is_told_once() {
        let log = Arc::<ExchangeLog>::default();
        let watcher = Arc::clone(&log);
        let connection = CommandConnection::new(watcher, 7);
        assert!(connection.request(b"PING\r\nPING\r\n").await);
        assert!(connection.request(b"PING\r\n").await);
        assert!(connection.response(b"+PONG\r\n").await);
        assert_eq!(*log.unread.lock(), [INLINE]);
        assert!(log.sent.lock().is_empty());
    }

    #[test]
    fn commands_are_read_beside_a_subscription() {
        const SENT: &[u8] =
            b"*2\r\n$9\r\nsubscribe\r\n$3\r\ncup\r\n*2\r\n$3\r\nGET\r\n$3\r\ntea\r\n";
        // As RESP2 has them, and RESP3.
        for kind in ['*', '>'] {
            let notice = |name: &str| {
                format!("{kind}3\r\n${}\r\n{name}\r\n$3\r\ncup\r\n$3\r\nnew\r\n", name.len())
            };
            let mut state = RedisConnectionState::default();
            for _ in 0..2 {
                let sent = state.take_requests(1, SENT).expect("one command");
                assert_eq!((sent.statements.len(), &*sent.statements[0].text), (1, "GET"));
                let answers =
                    [notice("subscribe"), notice("message"), "$5\r\ngreen\r\n".to_owned()];
                let answered = state.take_answers(answers.concat().as_bytes());
                let tags = answered.iter().map(|exchange| exchange.statements[0].tag.as_deref());
                assert_eq!(tags.collect::<Vec<_>>(), [Some("green")], "{kind}");
            }
        }
    }

    #[tokio::test]
    async fn commands_are_seen_with_their_answers() {
        let redis = TempRedis::start().await.unwrap();
        let log = Arc::<ExchangeLog>::default();
        let (target, watcher) = (Upstream::Socket(redis.socket()), Arc::clone(&log));
        let proxy = Proxy::watched_redis(target, watcher).await.unwrap();
        for protocol in ["resp2", "resp3"] {
            let (password, port) = (&redis.password, proxy.port);
            let url = format!("redis://:{password}@127.0.0.1:{port}/?protocol={protocol}");
            let client = Client::open(url).unwrap();
            let mut client = client.get_multiplexed_async_connection().await.unwrap();
            log.take();

            cmd("FLUSHALL").exec_async(&mut client).await.unwrap();
            cmd("set").arg("tea").arg("green").exec_async(&mut client).await.unwrap();
            let value: String = cmd("GET").arg("tea").query_async(&mut client).await.unwrap();
            assert_eq!(value, "green");
            cmd("INCR").arg("tea").exec_async(&mut client).await.unwrap_err();
            let failed = r#"INCR: (None, Some("ERR value is not an integer or out of range"))"#;
            let expected = ["FLUSHALL: OK", "SET: OK", "GET: green", failed].map(|it| vec![it]);
            assert_eq!(log.take(), expected, "{protocol}");

            // However many answers there are, it is one.
            let mut pipeline = pipe();
            pipeline.atomic().cmd("HSET").arg("cup").arg("size").arg(7).cmd("HGETALL").arg("cup");
            pipeline.exec_async(&mut client).await.unwrap();
            let expected = ["MULTI: OK", "HSET: QUEUED", "HGETALL: QUEUED", "EXEC: *2"];
            assert_eq!(log.take(), [expected], "{protocol}");
        }

        let sent = log.sent.lock().clone();
        assert!(sent.iter().all(|exchange| exchange.server == ServerKind::Redis), "{sent:?}");
        proxy.close_connections().await;
        let mut closed = log.closed.lock().clone();
        closed.sort_unstable();
        assert_eq!(closed, [0, 1]);
    }
}
