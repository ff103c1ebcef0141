//! A persistent connection with the part of HTTP/1.1 that a client of a known server needs.
//!
//! Hyper's own client builds every request from a map of headers and parses every response into
//! one: on the cores of the server under test, that costs about as much as the server's own share
//! of a small request. A chunked response is an error: the shop sends none.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Upper bound of headers in a response; the shop sends about a dozen.
const MAX_HEADERS: usize = 48;
const READ_SIZE: usize = 4 << 10;
const MAX_RESPONSE_SIZE: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct HttpConnection {
    stream: TcpStream,
    response: Vec<u8>,
    body_at: usize,
}

impl HttpConnection {
    pub(super) async fn open(target: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(target).await?;
        // Nagle's algorithm holds a small write back until the one before is acknowledged.
        stream.set_nodelay(true)?;
        Ok(Self { stream, response: Vec::with_capacity(READ_SIZE), body_at: 0 })
    }

    /// Sends a request, reads the whole response and returns its status. An error is final.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;

        self.response.clear();
        self.body_at = 0;
        loop {
            self.read_some().await?;
            if let Some(head) = head(&self.response)? {
                self.body_at = head.length;
                while self.response.len() < head.length + head.body {
                    self.read_some().await?;
                }
                return Ok(head.status);
            }
        }
    }

    pub(super) fn body(&self) -> &[u8] {
        self.response.get(self.body_at..).unwrap_or_default()
    }

    async fn read_some(&mut self) -> io::Result<()> {
        if self.response.len() > MAX_RESPONSE_SIZE {
            return Err(io::Error::other("the response is too long"));
        }
        self.response.reserve(READ_SIZE);
        match self.stream.read_buf(&mut self.response).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ResponseHead {
    status: u16,
    length: usize,
    body: usize,
}

fn head(bytes: &[u8]) -> io::Result<Option<ResponseHead>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(io::Error::other)?;
    let (httparse::Status::Complete(length), Some(status)) = (parsed, response.code) else {
        return Ok(None);
    };

    let body = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok())
        .or(if status == 204 { Some(0) } else { None })
        .ok_or_else(|| io::Error::other("the response has no Content-Length"))?;
    Ok(Some(ResponseHead { status, length, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_head_is_parsed_when_complete() {
        let text = b"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";
        assert_eq!(head(&text[..40]).expect("so far so good"), None);
        let whole = head(text).expect("it is whole");
        assert_eq!(whole, Some(ResponseHead { status: 409, length: text.len() - 5, body: 5 }));
        assert!(head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(head(b"SSH-2.0-nothing for us\r\n\r\n").is_err());
    }
}
