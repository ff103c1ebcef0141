//! The HTTP client of the export: without TLS, a connection for each request.
//!
//! It blocks, since the exporter has a thread of its own. Of the response it reads the head, which
//! is all that the exporter uses.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use percent_encoding::percent_decode_str;

const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

#[derive(Debug)]
pub(super) struct PlainClient {
    /// Of a whole request but the look-up of its host.
    pub(super) timeout: Duration,
}

#[async_trait]
impl HttpClient for PlainClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let deadline = Instant::now() + self.timeout;
        let mut connection = connect(&request, deadline)?;

        let mut message = head_of(&request);
        message.extend_from_slice(request.body());
        send(&mut connection, &message, deadline)?;

        receive_head(&mut connection, deadline)
    }
}

/// Connects to the first address of the host that accepts.
fn connect(request: &Request<Bytes>, deadline: Instant) -> io::Result<TcpStream> {
    let uri = request.uri();
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80));
    let mut refusal = io::Error::other("the collector's host has no address");
    for address in format!("{host}:{port}").to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, time_left(deadline)?) {
            Ok(connection) => return Ok(connection),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

fn head_of(request: &Request<Bytes>) -> Vec<u8> {
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let (credentials, host) = match authority.rsplit_once('@') {
        Some((credentials, host)) => (Some(credentials), host),
        None => (None, authority),
    };

    let length = request.body().len();
    let mut head = format!(
        "{} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n",
        request.method(),
    )
    .into_bytes();

    if let Some(credentials) = credentials {
        let decoded: Vec<u8> = percent_decode_str(credentials).collect();
        let credentials = BASE64_STANDARD.encode(decoded);
        head.extend_from_slice(format!("Authorization: Basic {credentials}\r\n").as_bytes());
    }

    for (name, value) in request.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }

    head.extend_from_slice(b"\r\n");
    head
}

/// Sends all bytes. Each write has only the time that is left, so that a collector that reads
/// slowly cannot extend it.
fn send(connection: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.set_write_timeout(Some(time_left(deadline)?))?;
        let sent = connection.write(bytes)?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn receive_head(
    connection: &mut TcpStream,
    deadline: Instant,
) -> Result<Response<Bytes>, HttpError> {
    let mut received = Vec::new();
    let mut part = [0; 4 << 10];
    loop {
        connection.set_read_timeout(Some(time_left(deadline)?))?;
        let length = connection.read(&mut part)?;
        if length == 0 || received.len() > MAX_HEAD_BYTES {
            return Err("the collector sent no HTTP response".into());
        }

        received.extend_from_slice(&part[..length]);
        if let Some(response) = parse_head(&received)? {
            return Ok(response);
        }
    }
}

/// Returns the status and the headers; `None` until they are complete.
fn parse_head(received: &[u8]) -> Result<Option<Response<Bytes>>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    if head.parse(received)?.is_partial() {
        return Ok(None);
    }
    let mut response = Response::builder().status(head.code.unwrap_or_default());
    for header in head.headers {
        // With `Retry-After`, which the exporter obeys.
        response = response.header(header.name, header.value);
    }
    Ok(Some(response.body(Bytes::new())?))
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the collector did not respond in time",
        ));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_request_has_credentials_and_headers() {
        let request = Request::post("http://us%3Aer:p%40ss@[::1]:4318/v1/traces?a=b")
            .header("x-tenant", "tea")
            .body(Bytes::from_static(b"spans"))
            .expect("a request");
        let head = String::from_utf8(head_of(&request)).expect("text");
        assert!(head.starts_with("POST /v1/traces?a=b HTTP/1.1\r\nHost: [::1]:4318\r\n"), "{head}");
        // us:er:p@ss
        assert!(head.contains("\r\nAuthorization: Basic dXM6ZXI6cEBzcw==\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 5\r\n"), "{head}");
        assert!(head.ends_with("\r\nx-tenant: tea\r\n\r\n"), "{head}");
    }

    #[test]
    fn response_is_known_when_its_head_is_complete() {
        let text = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n";
        assert!(parse_head(&text[..40]).expect("so far so good").is_none());
        let response = parse_head(text).expect("a response").expect("all of it");
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "7");
        assert!(parse_head(b"SSH-2.0-not for us\r\n\r\n").is_err());
    }
}
