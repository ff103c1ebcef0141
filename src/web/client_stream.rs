//! The stream of a client's connection, below actix: ends late connections, and replaces the
//! responses of actix's parser.
//!
//! actix-http answers bytes that are no request with an empty response, has no hook for it, and
//! limits only the time of a connection's first head: therefore the shop has a stream of its own.
//! [`ClientStream`] recognizes a response of the parser by its form: it is the last one of a
//! connection, and has no header but `content-length: 0`, `connection` and `date`, whereas every
//! other response has an `x-request-id`. It sends a problem instead, and counts it as a request.
//! Tests: `tests/it/malformed_requests.rs`.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::MessageBody as _;
use actix_web::http::StatusCode;
use actix_web::http::header::HttpDate;
use actix_web::rt::net::TcpStream;
use actix_web::web::{Buf as _, Bytes};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::middleware::connection_phase::{ConnectionPhase, HEAD_TIMEOUT};
use super::middleware::connections::CountedConnection;
use super::middleware::request_context::respond_without_request;
use super::problems::{Problem, ProblemType};
use super::state::State;

/// Time for which the rest of a response may be sent once the connection is to be closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Upper bound of what is received and discarded before a connection is closed, in bytes.
const MAX_DISCARDED_BYTES: usize = 1024 * 1024;

/// A client's connection, as actix reads and writes it.
pub struct ClientStream {
    tcp: TcpStream,
    state: State,
    phase: Rc<ConnectionPhase>,
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

    pub fn phase(&self) -> &Rc<ConnectionPhase> {
        &self.phase
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
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
            if self.phase.is_in_head() {
                self.prepare_problem(StatusCode::REQUEST_TIMEOUT);
            }
        }
        late
    }

    fn prepare_problem(&mut self, status: StatusCode) {
        let started = self.phase.since().into_std();
        let response = respond_without_request(&self.state, &unparsed(status), started);
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
        if let (Poll::Pending, Some(closes_at)) = (&sent, this.closes_at) {
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

/// Returns the status and the length of the parser's response at the end of `bytes`, if there is
/// one. No body of the shop ends like that: none of its media types has such a line.
fn find_parser_response(bytes: &[u8]) -> Option<(StatusCode, usize)> {
    /// Length of a date, up to " GMT".
    const DATE_LENGTH: usize = 25;
    /// More than the longest status line.
    const MAX_STATUS_LINE: usize = 64;
    let head = bytes.strip_suffix(b" GMT\r\n\r\n")?;
    let head = &head[..head.len().checked_sub(DATE_LENGTH)?];
    let head = head.strip_suffix(b"date: ")?;
    let head = ["connection: close\r\n", "connection: keep-alive\r\n"]
        .iter()
        .find_map(|line| head.strip_suffix(line.as_bytes()))
        .unwrap_or(head);
    let head = head.strip_suffix(b"\r\ncontent-length: 0\r\n")?;
    let end = &head[head.len().saturating_sub(MAX_STATUS_LINE)..];
    let length = end.len() - end.windows(7).rposition(|window| window == b"HTTP/1.")?;
    let start = head.len() - length;
    let status_line = std::str::from_utf8(&head[start..]).ok()?;
    let status = status_line.split(' ').nth(1)?.parse().ok()?;
    (!status_line.contains('\n')).then_some((status, bytes.len() - start))
}

/// Returns the problem of bytes that are not a request.
fn unparsed(status: StatusCode) -> Problem {
    let (problem_type, detail) = match status {
        StatusCode::REQUEST_TIMEOUT => (
            ProblemType::RequestTimeout,
            format!(
                "the request line and headers did not arrive within {} s; send the whole request \
                 on a new connection",
                HEAD_TIMEOUT.as_secs()
            ),
        ),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => (
            ProblemType::InvalidRequest,
            "the request line and headers are too large: 128 KiB and 96 headers are the most; \
             send fewer or shorter headers, such as cookies"
                .to_owned(),
        ),
        StatusCode::BAD_REQUEST => (
            ProblemType::InvalidRequest,
            "the request line or a header is not valid HTTP/1.1; correct it, and send the request \
             on a new connection"
                .to_owned(),
        ),
        _ => (
            ProblemType::InternalError,
            "the request could not be read; send it again on a new connection".to_owned(),
        ),
    };
    Problem::new(problem_type, detail).status(status)
}

/// Returns a response as it is sent; it closes the connection.
fn encode(response: HttpResponse) -> Bytes {
    let status = response.status();
    let (head, body) = response.into_parts();
    let body = body.try_into_bytes().unwrap_or_default();
    let date = HttpDate::from(std::time::SystemTime::from(OffsetDateTime::now_utc()));
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
