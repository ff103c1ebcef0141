//! The stream of a client's connection, below actix: ends late connections, and replaces the
//! responses of actix's parser, which are empty and are not counted.
//!
//! A response of the parser is the last one of a connection, and has no `x-request-id`. actix-http
//! has no hook for it, and limits only the time of a connection's first head.
//! Tests: `tests/it/malformed_requests.rs`.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use actix_web::HttpResponse;
use actix_web::body::MessageBody as _;
use actix_web::http::StatusCode;
use actix_web::http::header::HttpDate;
use actix_web::rt::net::TcpStream;
use actix_web::web::{Buf as _, Bytes};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::middleware::connections::CountedConnection;
use super::middleware::request_notes::respond_without_request;
use super::problems::{Problem, ProblemType};
use super::state::State;
use holdfast_base::messages::message;

/// Time in which the head of a request must arrive, and after which an idle connection is closed.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which the rest of a response may be sent once the connection is to be closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_DISCARDED_BYTES: usize = 1024 * 1024;

pub struct ClientStream {
    tcp: TcpStream,
    state: State,
    pub phase: Rc<ConnectionPhase>,
    /// Wakes the connection at its deadline, or earlier: it is moved only when it has fired.
    timer: Option<Pin<Box<Sleep>>>,
    /// Set once the connection was too late: the time at which it is closed.
    closes_at: Option<Instant>,
    /// The rest of a problem that the stream sends itself.
    problem: Option<Bytes>,
    _counted: CountedConnection,
}

impl ClientStream {
    pub fn new(tcp: TcpStream, state: State, counted: CountedConnection) -> Self {
        Self {
            tcp,
            state,
            phase: Rc::default(),
            timer: None,
            closes_at: None,
            problem: None,
            _counted: counted,
        }
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        // That of a response that is to be sent is later than that of the next head.
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// Returns whether the connection is too late for actix to wait for it.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if self.closes_at.is_some() {
            return true;
        }
        let deadline = self.phase.deadline();
        let late = deadline.is_some_and(|deadline| self.poll_deadline(deadline, cx).is_ready());
        if late {
            self.closes_at = Some(Instant::now() + CLOSE_TIMEOUT);
            if self.phase.phase.get() == Phase::Head {
                self.prepare_problem(StatusCode::REQUEST_TIMEOUT);
            }
        }
        late
    }

    fn prepare_problem(&mut self, status: StatusCode) {
        let problem = unparsed(status);
        let response =
            respond_without_request(&self.state, &problem, self.phase.since.get().into_std());
        self.problem = Some(encode(response));
    }

    fn poll_send_problem(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.problem.as_mut().filter(|rest| !rest.is_empty()) {
            let sent = ready!(Pin::new(&mut self.tcp).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            rest.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends `bytes`; of a response of the parser, the problem that replaces it.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some((status, length)) = find_parser_response(bytes) else {
            return Pin::new(&mut self.tcp).poll_write(cx, bytes);
        };

        let others = bytes.len() - length;
        if others > 0 {
            return Pin::new(&mut self.tcp).poll_write(cx, &bytes[..others]);
        }

        if self.problem.is_none() {
            self.prepare_problem(status);
        }

        ready!(self.poll_send_problem(cx))?;
        self.discard_received();
        Poll::Ready(Ok(length))
    }

    /// Discards what has arrived. A socket that is closed with unread bytes resets the connection,
    /// and the client may lose the response.
    fn discard_received(&self) {
        let mut discarded = [0; 8 * 1024];
        for _ in 0..MAX_DISCARDED_BYTES / discarded.len() {
            if !self.tcp.try_read(&mut discarded).is_ok_and(|received| received > 0) {
                break;
            }
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        let read = Pin::new(&mut this.tcp).poll_read(cx, buffer);

        match &read {
            Poll::Ready(_) if buffer.filled().len() > filled => this.phase.receive(),
            // For actix, the client has closed its half: actix sends the rest and shuts down.
            Poll::Pending if this.is_late(cx) => return Poll::Ready(Ok(())),
            _ => {}
        }
        read
    }
}

impl AsyncWrite for ClientStream {
    /// actix-http writes with this method only, so a vectored write needs no implementation.
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = this.poll_send(cx, bytes);
        // The kernel closes the connection of a client that reads nothing, not of a slow one.
        let closes_at = this.closes_at.or(this.phase.send_by.get());
        if let (Poll::Pending, Some(closes_at)) = (&sent, closes_at) {
            ready!(this.poll_deadline(closes_at, cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        sent
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send_problem(cx))?;
        Pin::new(&mut this.tcp).poll_shutdown(cx)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
    Request,
}

/// The phase of a connection, which its stream and its requests share.
#[derive(Debug)]
pub struct ConnectionPhase {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    /// When the connection is closed if the response has not been sent by then.
    send_by: Cell<Option<Instant>>,
}

/// A request in progress. The connection is idle when this is dropped, with the sent response.
#[derive(Debug)]
pub struct RequestInProgress(Rc<ConnectionPhase>);

/// The phase of a new connection. Clients keep some in reserve: one that never sends anything is
/// closed silently, as an idle one is. A response without a request would be an error to them.
impl Default for ConnectionPhase {
    fn default() -> Self {
        let since = Cell::new(Instant::now());
        Self { phase: Cell::new(Phase::Idle), since, send_by: Cell::default() }
    }
}

impl ConnectionPhase {
    pub fn begin_request(self: &Rc<Self>) -> RequestInProgress {
        self.phase.set(Phase::Request);
        RequestInProgress(self.clone())
    }

    /// Bounds the time in which the response of the request in progress is sent.
    pub fn send_within(&self, time: Duration) {
        self.send_by.set(Some(Instant::now() + time));
    }

    /// Notes that bytes arrived: the head of the next request, unless there is a request.
    fn receive(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// Returns the end of a phase that waits for the client.
    fn deadline(&self) -> Option<Instant> {
        (self.phase.get() != Phase::Request).then(|| self.since.get() + CLIENT_TIMEOUT)
    }

    fn enter(&self, phase: Phase) {
        self.send_by.set(None);
        self.phase.set(phase);
        self.since.set(Instant::now());
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// Returns the status and the length of the parser's response at the end of `bytes`, if there is
/// one. No body of the shop ends like that: none of its media types has such a line.
fn find_parser_response(bytes: &[u8]) -> Option<(StatusCode, usize)> {
    const START: &[u8] = b"HTTP/1.";
    if !bytes.ends_with(b" GMT\r\n\r\n") {
        return None;
    }
    let start = bytes.windows(START.len()).rposition(|window| window == START)?;
    let head = std::str::from_utf8(&bytes[start..]).ok()?;
    if head.contains("x-request-id: ") || !head.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.len()))
}

fn unparsed(status: StatusCode) -> Problem {
    let (problem_type, detail) = match status {
        StatusCode::REQUEST_TIMEOUT => (ProblemType::RequestTimeout, message!("problem-late-head")),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            (ProblemType::InvalidRequest, message!("problem-large-head"))
        }
        StatusCode::BAD_REQUEST => (ProblemType::InvalidRequest, message!("problem-invalid-head")),
        _ => (ProblemType::InternalError, message!("problem-unread-request")),
    };

    Problem::new(problem_type, detail).status(status)
}

/// Returns a response as it is sent; it closes the connection.
fn encode(response: HttpResponse) -> Bytes {
    let status = response.status();
    let (head, body) = response.into_parts();
    let body = body.try_into_bytes().unwrap_or_default();
    let date = HttpDate::from(SystemTime::from(OffsetDateTime::now_utc()));

    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\ndate: {date}\r\n",
        body.len()
    )
    .into_bytes();

    for (name, value) in head.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }

    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";

    #[test]
    fn only_bare_responses_are_the_parsers() {
        let found = |text: &str| {
            find_parser_response(text.as_bytes()).map(|(status, length)| (status.as_u16(), length))
        };
        for (status, line) in [
            (400, "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n"),
            (400, "HTTP/1.0 400 Bad Request\r\ncontent-length: 0\r\nconnection: keep-alive\r\n"),
            (431, "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n"),
        ] {
            let response = format!("{line}{DATE}");
            assert_eq!(found(&response), Some((status, response.len())), "{response}");
            let both = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{{}}{response}");
            assert_eq!(found(&both), Some((status, response.len())), "{both}");
        }
        let ours = "HTTP/1.1 303 See Other\r\ncontent-length: 0\r\nx-request-id: 1\r\n";
        assert_eq!(found(&format!("{ours}{DATE}")), None);
        assert_eq!(found(&format!("\r\ncontent-length: 0\r\n{DATE}")), None);
        assert_eq!(found(DATE), None);
        assert_eq!(found(" GMT\r\n\r\n"), None);
    }
}
