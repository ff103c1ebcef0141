//! The statements on a connection to Postgres, as a proxy sees them pass: the executed ones, with
//! their values, their answers and the times of both. The bytes are forwarded as they are.
//!
//! An exchange is what the server answers with one `ReadyForQuery`: a simple query, or all messages
//! up to a Sync. What is prepared with a Flush alone belongs to none. Of the contents of `COPY`,
//! and of messages that are longer than [`MAX_KEPT`], nothing is kept.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use holdfast_lock::clock::monotonic_us;
use parking_lot::Mutex;
use pgwire::messages::data::{DataRow, RowDescription};
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use pgwire::messages::response::{CommandComplete, ErrorResponse};
use pgwire::messages::simplequery::Query;
use pgwire::messages::startup::BackendKeyData;
use pgwire::messages::{DecodeContext, Message};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::passing::{Exchange, Passing, Statement, Watcher, tell};

/// The longest message whose content is read.
const MAX_KEPT: usize = 256 << 10;
/// Its type, and its length without the type.
const HEAD_BYTES: usize = 5;
/// The longest first message of a client, as in Postgres.
const MAX_FIRST: usize = 10_000;
/// `SSLRequest` and `GSSENCRequest`.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// Field of an error with its text.
const ERROR_TEXT: u8 = b'M';

/// Returns the first message of a client. Its questions for encryption are answered with no.
///
/// # Errors
/// If the connection is closed, or the client begins with TLS.
pub(super) async fn admit(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        // Its length, of itself too, and its kind.
        let mut first = vec![0; 2 * size_of::<u32>()];
        client.read_exact(&mut first).await?;
        let (length, kind) = first.split_at(size_of::<u32>());
        if ENCRYPTION_REQUESTS.iter().any(|request| request.to_be_bytes() == *kind) {
            client.write_all(b"N").await?;
            continue;
        }

        let length = length.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
        if !(first.len()..=MAX_FIRST).contains(&length) {
            return Err(io::Error::other("it is no client of Postgres without TLS"));
        }
        let begun = first.len();
        first.resize(length, 0);
        client.read_exact(&mut first[begun..]).await?;
        return Ok(first);
    }
}

/// One connection of a watched link.
#[derive(Debug)]
pub(super) struct WatchedConnection {
    watcher: Arc<dyn Watcher>,
    state: Mutex<PostgresConnectionState>,
}

impl WatchedConnection {
    pub(super) fn new(watcher: Arc<dyn Watcher>, connection: u64) -> Self {
        let state = PostgresConnectionState { connection, ..PostgresConnectionState::default() };
        Self { watcher, state: Mutex::new(state) }
    }

    /// Reads what the server sends, and returns the exchanges that end with it.
    fn answered(&self, mut chunk: &[u8]) -> Vec<Exchange> {
        let mut answered = Vec::new();
        let mut state = self.state.lock();
        while let Some(message) = state.responses.next(&mut chunk) {
            answered.extend(state.take_response(message));
        }
        answered
    }
}

impl Drop for WatchedConnection {
    fn drop(&mut self) {
        self.watcher.closed(self.state.lock().connection);
    }
}

impl Passing for WatchedConnection {
    fn request<'a>(&'a self, mut chunk: &'a [u8]) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let (first, exchanges) = {
                let mut state = self.state.lock();
                let first = state.sent;
                while let Some(message) = state.requests.next(&mut chunk) {
                    state.take_request(message);
                }
                let sent =
                    state.exchanges.iter().filter(|it| (first..state.sent).contains(&it.number));
                (first, sent.cloned().collect())
            };
            let goes_on = self.watcher.sent(exchanges).await;

            // It may have been held up.
            let mut state = self.state.lock();
            let now_us = monotonic_us();
            let sent = state.exchanges.iter_mut().filter(|it| it.number >= first);
            sent.for_each(|exchange| exchange.sent_us = now_us);
            goes_on
        })
    }

    fn response<'a>(&'a self, chunk: &'a [u8]) -> BoxFuture<'a, bool> {
        Box::pin(async move { tell(&*self.watcher, self.answered(chunk)).await })
    }
}

#[derive(Debug, Default)]
struct PostgresConnectionState {
    connection: u64,
    backend: i32,
    requests: Messages,
    responses: Messages,
    /// The texts of the prepared statements, and what was bound to them.
    prepared: HashMap<String, Arc<str>>,
    portals: HashMap<String, Statement>,
    /// The columns of the described statements; and the texts of those whose description is
    /// awaited, with the number of the exchange. Those of a simple query come with its rows, and
    /// its text may never come again.
    columns: HashMap<Arc<str>, Vec<String>>,
    simple_columns: Vec<String>,
    described: VecDeque<(u64, Arc<str>)>,
    /// Without an answer, the oldest first.
    exchanges: VecDeque<Exchange>,
    /// More of the last one is to come, before its Sync.
    is_open: bool,
    /// Number of exchanges that were sent to their ends.
    sent: u64,
    /// The first `ReadyForQuery`, which ends the sign-in, was received.
    is_ready: bool,
    /// The server ignores the Sync that was sent before the data of a `COPY`.
    ignores_sync: bool,
}

impl PostgresConnectionState {
    fn take_request(&mut self, mut message: Received) {
        match message.kind {
            b'P' => {
                if let Some(Parse { name, query, .. }) = message.decode() {
                    self.prepared.insert(name.unwrap_or_default(), query.into());
                } else {
                    // Too long, and without a name most likely: the text before it is gone.
                    self.prepared.remove("");
                }
            }
            b'B' => {
                if let Some(bind) = message.decode::<Bind>() {
                    let text = self.prepared.get(&bind.statement_name.unwrap_or_default());
                    let text = text.cloned().unwrap_or_default();
                    let values = bind.parameters.iter().map(|value| value.as_ref().map(shown));
                    let statement =
                        Statement { text, values: values.collect(), ..Statement::default() };
                    self.portals.insert(bind.portal_name.unwrap_or_default(), statement);
                } else {
                    self.portals.remove("");
                }
            }
            b'D' => {
                if let Some(Describe { target_type, name, .. }) = message.decode() {
                    let name = name.unwrap_or_default();
                    let text = match target_type {
                        b'S' => self.prepared.get(&name),
                        _ => self.portals.get(&name).map(|portal| &portal.text),
                    };
                    self.described.push_back((self.sent, text.cloned().unwrap_or_default()));
                }
            }
            b'C' => {
                if let Some(Close { target_type, name, .. }) = message.decode() {
                    let name = name.unwrap_or_default();
                    match target_type {
                        b'S' => drop(self.prepared.remove(&name)),
                        _ => drop(self.portals.remove(&name)),
                    }
                }
            }
            b'E' => {
                if let Some(Execute { name, .. }) = message.decode() {
                    let statement = self.portals.get(&name.unwrap_or_default());
                    let statement = statement.cloned().unwrap_or_default();
                    self.open().statements.push(statement);
                }
            }
            b'Q' => {
                let query = message.decode().map(|Query { query, .. }| query).unwrap_or_default();
                let exchange = self.open();
                exchange.is_simple = true;
                exchange.statements.push(Statement { text: query.into(), ..Statement::default() });
                self.close();
            }
            // A call of a function, whose parts are not read.
            b'F' => {
                self.open();
                self.close();
            }
            b'S' if self.ignores_sync => self.ignores_sync = false,
            b'S' => {
                self.open();
                self.close();
            }
            _ => {}
        }
    }

    fn open(&mut self) -> &mut Exchange {
        if !self.is_open {
            let (connection, backend, number) = (self.connection, self.backend, self.sent);
            let exchange = Exchange { connection, backend, number, ..Exchange::default() };
            self.exchanges.push_back(exchange);
            self.is_open = true;
        }
        let last = self.exchanges.len() - 1;
        &mut self.exchanges[last]
    }

    fn close(&mut self) {
        self.is_open = false;
        self.sent += 1;
    }

    /// Returns the exchange that the message ends.
    fn take_response(&mut self, mut message: Received) -> Option<Exchange> {
        match message.kind {
            b'Z' if !self.is_ready => self.is_ready = true,
            b'K' => {
                let key = message.decode();
                self.backend = key.map_or(0, |BackendKeyData { pid, .. }| pid);
            }
            b'Z' => {
                let mut exchange = self.exchanges.pop_front()?;
                exchange.in_transaction = message.bytes.last() != Some(&b'I');
                exchange.answered_us = monotonic_us();
                return Some(exchange);
            }
            b'T' => {
                let columns = message.decode().map(|RowDescription { fields, .. }| {
                    fields.into_iter().map(|field| field.name).collect::<Vec<_>>()
                });
                let columns = columns.unwrap_or_default();
                if self.exchanges.front().is_some_and(|exchange| exchange.is_simple) {
                    self.simple_columns = columns;
                } else if let Some((_, text)) = self.described.pop_front() {
                    self.columns.insert(text, columns);
                }
            }
            b'n' => {
                self.described.pop_front();
            }
            b'D' => self.take_row(&mut message),
            b'C' => {
                let tag = message.decode().map(|CommandComplete { tag, .. }| tag);
                self.end_statement(|statement| statement.tag = Some(tag.unwrap_or_default()));
            }
            // An empty statement, or one of which more rows can be fetched.
            b'I' | b's' => self.end_statement(|statement| statement.tag = Some(String::new())),
            b'E' => {
                // The server skips what follows, up to the Sync.
                let failed = self.exchanges.front().map_or(self.sent, |exchange| exchange.number);
                self.described.retain(|(number, _)| *number != failed);
                let fields = message.decode().map(|ErrorResponse { fields, .. }| fields);
                let fields = fields.unwrap_or_default().into_iter();
                let text = fields.filter(|(code, _)| *code == ERROR_TEXT).map(|(_, text)| text);
                let text = text.collect::<String>();
                self.end_statement(|statement| statement.error = Some(text));
            }
            b'G' => {
                let has_sync = self.exchanges.len() > 1 || !self.is_open;
                let is_extended = self.exchanges.front().is_some_and(|it| !it.is_simple);
                if is_extended && has_sync {
                    // The Sync behind the data, which ends this exchange, may have been sent
                    // already.
                    let is_next_sent = self.exchanges.len() > 1 + usize::from(self.is_open);
                    self.ignores_sync = !is_next_sent;
                    if is_next_sent {
                        self.exchanges.remove(1);
                    }
                }
            }
            _ => {}
        }
        None
    }

    fn take_row(&mut self, message: &mut Received) {
        let Some(exchange) = self.exchanges.front_mut() else { return };
        let is_simple = exchange.is_simple;
        let Some(statement) = answered_statement(exchange) else { return };
        let described =
            if is_simple { Some(&self.simple_columns) } else { self.columns.get(&statement.text) };
        let Some(columns) = described else { return };
        if statement.row.is_empty()
            && let Some(DataRow { data, .. }) = message.decode()
        {
            let values = fields(data.freeze()).into_iter();
            let row = columns.iter().cloned().zip(values);
            statement.row = row.map(|(name, value)| (name, value.as_ref().map(shown))).collect();
        }
    }

    fn end_statement(&mut self, end: impl FnOnce(&mut Statement)) {
        if let Some(statement) = self.exchanges.front_mut().and_then(answered_statement) {
            end(statement);
        }
    }
}

/// Returns the statement that the server answers now. The parts of a simple query are one.
fn answered_statement(exchange: &mut Exchange) -> Option<&mut Statement> {
    let is_simple = exchange.is_simple;
    exchange.statements.iter_mut().find(|it| is_simple || (it.tag.is_none() && it.error.is_none()))
}

/// A message, with its head; without its bytes if it is too long.
#[derive(Debug)]
struct Received {
    kind: u8,
    bytes: BytesMut,
}

impl Received {
    /// Returns the content; `None` if it is too long, or not what it should be.
    fn decode<M: Message>(&mut self) -> Option<M> {
        M::decode(&mut self.bytes, &DecodeContext::default()).ok().flatten()
    }
}

/// Cuts what one side sends into messages, however it arrives.
#[derive(Debug, Default)]
struct Messages {
    /// The beginning of a message.
    kept: Vec<u8>,
    seen: usize,
}

impl Messages {
    /// Returns the next message that ends in the chunk, and what is left of that.
    fn next(&mut self, chunk: &mut &[u8]) -> Option<Received> {
        self.take(HEAD_BYTES, chunk);
        let &[kind, a, b, c, d] = self.kept.first_chunk()?;
        let length = (u32::from_be_bytes([a, b, c, d]) as usize + 1).max(HEAD_BYTES);
        self.take(length, chunk);
        if self.seen < length {
            return None;
        }

        self.seen = 0;
        let mut bytes = BytesMut::from(&*std::mem::take(&mut self.kept));
        if length > MAX_KEPT {
            bytes.clear();
        }
        Some(Received { kind, bytes })
    }

    fn take(&mut self, up_to: usize, chunk: &mut &[u8]) {
        let (taken, rest) = chunk.split_at(up_to.saturating_sub(self.seen).min(chunk.len()));
        if up_to <= MAX_KEPT {
            self.kept.extend_from_slice(taken);
        }
        self.seen += taken.len();
        *chunk = rest;
    }
}

/// Returns the fields of a row; `None` for null.
fn fields(mut data: Bytes) -> Vec<Option<Bytes>> {
    let mut fields = Vec::new();
    while data.remaining() >= size_of::<i32>() {
        let length = usize::try_from(data.get_i32()).ok();
        fields.push(length.map(|length| data.split_to(length.min(data.len()))));
    }
    fields
}

/// Returns a value in words. In which format it was sent is not known of each: digits in binary are
/// not printable, and 16 bytes that are no text are a UUID.
fn shown(value: &Bytes) -> String {
    let text = std::str::from_utf8(value).ok();
    if let Some(text) = text.filter(|text| !text.contains(char::is_control)) {
        return text.to_owned();
    }
    match **value {
        [a, b] => i16::from_be_bytes([a, b]).to_string(),
        [a, b, c, d] => i32::from_be_bytes([a, b, c, d]).to_string(),
        _ => {
            let number = value.first_chunk().filter(|_| value.len() == size_of::<i64>());
            let number = number.map(|bytes| i64::from_be_bytes(*bytes).to_string());
            let uuid = || Uuid::from_slice(value).ok().map(|uuid| uuid.to_string());
            number.or_else(uuid).unwrap_or_else(|| format!("{} bytes", value.len()))
        }
    }
}

#[cfg(test)]
mod tests;
