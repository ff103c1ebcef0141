//! The attempt of a buyer over HTTP: one request on a connection of its own, of whose answer only
//! the status counts. A client library would send the request again, or read the answer of one
//! whose connection is to be cut.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::file::{OrderSettings, Values};

/// Limits of the head of an answer: number of headers, and bytes.
const MAX_HEADERS: usize = 128;
const MAX_HEAD: usize = 64 << 10;
/// Otherwise it would be read in parts of 64 bytes.
const READ_BYTES: usize = 4 << 10;
/// Characters of a body that an error quotes, and how long they are waited for.
const QUOTED_CHARS: usize = 200;
const BODY_TIMEOUT: Duration = Duration::from_millis(200);

/// An HTTP answer.
#[derive(Debug, Clone)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    location: Option<String>,
    /// Its body comes in chunks, each with its size before it.
    is_chunked: bool,
    body: Vec<u8>,
}

impl HttpAnswer {
    /// Describes an answer that was not expected.
    pub(super) fn describe(&self) -> String {
        let location = self.location.iter().map(|to| format!(", to {to}")).collect::<String>();
        let body = String::from_utf8_lossy(&self.body);
        let words = body.split_whitespace().collect::<Vec<_>>().join(" ");
        let quoted: String = words.chars().take(QUOTED_CHARS).collect();
        match quoted.as_str() {
            "" => format!("status {}{location}", self.status),
            quoted => format!("status {}{location}: {quoted}", self.status),
        }
    }
}

/// A request to an instance.
#[derive(Debug, Clone)]
pub(super) struct HttpRequest {
    /// Host and port.
    address: String,
    bytes: Vec<u8>,
}

impl HttpRequest {
    pub(super) fn get(base: &str, path: &str) -> anyhow::Result<Self> {
        Self::new("GET", base, path, &[], None)
    }

    /// Returns the request of an attempt.
    pub(super) fn order(
        order: &OrderSettings,
        base: &str,
        values: &Values,
    ) -> anyhow::Result<Self> {
        let path = values.fill(order.post.as_deref().unwrap_or_default());
        let mut headers: Vec<(String, String)> = Vec::new();
        let json = order.json.as_ref().map(|json| values.fill_json(json).to_string());
        let form = order.form.as_ref().map(|form| {
            let fields = form.iter().map(|(name, value)| (name, values.fill(value)));
            form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
        });
        let kind =
            if json.is_some() { "application/json" } else { "application/x-www-form-urlencoded" };
        let body = json.or(form);
        let has_kind = order.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
        if body.is_some() && !has_kind {
            headers.push(("Content-Type".to_owned(), kind.to_owned()));
        }
        let own = order.headers.iter().map(|(name, value)| (name.clone(), values.fill(value)));
        headers.extend(own);
        Self::new("POST", base, &path, &headers, body)
    }

    fn new(
        method: &str,
        base: &str,
        path: &str,
        headers: &[(String, String)],
        body: Option<String>,
    ) -> anyhow::Result<Self> {
        let rest = base.strip_prefix("http://").context("the URL must begin with http://")?;
        let (host, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let prefix = prefix.trim_end_matches('/');
        let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };

        let mut bytes = format!("{method} {prefix}{path} HTTP/1.1\r\nHost: {host}\r\n");
        bytes += "Accept: */*\r\nConnection: close\r\n";
        for (name, value) in headers {
            if name.contains(['\r', '\n', ':']) || value.contains(['\r', '\n']) {
                bail!("[order] headers: {name} has a line break or a colon in it");
            }
            bytes += &format!("{name}: {value}\r\n");
        }
        let body = body.unwrap_or_default();
        if method == "POST" {
            bytes += &format!("Content-Length: {}\r\n", body.len());
        }
        bytes += &format!("\r\n{body}");
        Ok(Self { address, bytes: bytes.into_bytes() })
    }

    /// Sends it, and closes the connection after this time without reading an answer.
    pub(super) async fn send_and_cut(&self, after: Duration) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(&self.bytes).await?;
        sleep(after).await;
        Ok(())
    }

    /// Sends it and returns the answer, with the begin of its body if the status is not as
    /// expected.
    pub(super) async fn send(
        &self,
        is_expected: impl Fn(u16) -> bool,
    ) -> std::io::Result<HttpAnswer> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let _ = stream.set_nodelay(true);
        stream.write_all(&self.bytes).await?;

        let mut received = Vec::with_capacity(READ_BYTES);
        let mut answer = loop {
            if let Some((head, body_at)) = parse_head(&received)? {
                received.drain(..body_at);
                // `100 Continue` and `103 Early Hints` come before the answer.
                if head.status >= 200 {
                    break head;
                }
                continue;
            }
            if received.len() > MAX_HEAD {
                return Err(std::io::Error::other("the head of the answer is too long"));
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        };

        let is_chunked = answer.is_chunked;
        answer.body = received;
        if !is_expected(answer.status) {
            let body = &mut answer.body;
            let reading = async {
                while body.len() < QUOTED_CHARS && matches!(stream.read_buf(body).await, Ok(1..)) {}
            };
            let _ = timeout(BODY_TIMEOUT, reading).await;
            if is_chunked {
                answer.body = unchunked(&answer.body);
            }
        }
        Ok(answer)
    }
}

/// Returns the answer without its body, and where that begins; `None` before the end of the head.
fn parse_head(received: &[u8]) -> std::io::Result<Option<(HttpAnswer, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(received).map_err(std::io::Error::other)?;
    let (httparse::Status::Complete(length), Some(status)) = (parsed, response.code) else {
        return Ok(None);
    };

    let location = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("location"));
    let location = location.map(|it| String::from_utf8_lossy(it.value).into_owned());
    let encoding =
        response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("transfer-encoding"));
    let is_chunked = encoding.is_some_and(|it| it.value.eq_ignore_ascii_case(b"chunked"));
    Ok(Some((HttpAnswer { status, location, is_chunked, body: Vec::new() }, length)))
}

/// Returns the contents of the chunks, as far as they were received.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    while let Ok(httparse::Status::Complete((begin, length @ 1..))) =
        httparse::parse_chunk_size(body)
    {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let received = &body[begin..];
        let (chunk, rest) = received.split_at(length.min(received.len()));
        contents.extend_from_slice(chunk);
        body = rest.strip_prefix(b"\r\n").unwrap_or_default();
    }
    contents
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::future::join;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn hints_before_the_answer_are_skipped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let serving = async {
            let (mut client, _) = listener.accept().await.unwrap();
            let hints =
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            let answer = "HTTP/1.1 409 Conflict\r\nContent-Length: 8\r\n\r\nsold out";
            client.write_all([hints, answer].concat().as_bytes()).await.unwrap();
            client
        };
        let request = HttpRequest::get(&base, "/").unwrap();
        let (answer, _client) = join(request.send(|_| false), serving).await;
        assert_eq!(answer.unwrap().describe(), "status 409: sold out");
    }

    #[test]
    fn chunks_are_quoted_without_their_sizes() {
        let body = b"5\r\nsold \r\n3\r\nout\r\n0\r\n\r\n";
        assert_eq!(unchunked(body), b"sold out");
        assert_eq!(unchunked(&body[..12]), b"sold ");
    }

    #[test]
    fn order_is_sent_as_described() {
        let mut order = OrderSettings {
            post: Some("/orders/{item}".to_owned()),
            json: Some(json!({ "buyer": "{buyer}" })),
            form: None,
            headers: BTreeMap::from([("Idempotency-Key".to_owned(), "{key}".to_owned())]),
            sold: vec![201],
            sold_out: Vec::new(),
            command: Vec::new(),
        };
        let values = Values::default().with("item", "tea").with("buyer", 7).with("key", "k");
        let text = |order: &OrderSettings| {
            let request = HttpRequest::order(order, "http://shop:81/api/", &values).unwrap();
            assert_eq!(request.address, "shop:81");
            String::from_utf8(request.bytes).unwrap()
        };
        let sent = text(&order);
        assert!(sent.starts_with("POST /api/orders/tea HTTP/1.1\r\nHost: shop:81\r\n"), "{sent}");
        assert!(
            sent.contains("Content-Type: application/json\r\nIdempotency-Key: k\r\n"),
            "{sent}"
        );
        assert!(sent.ends_with("Content-Length: 11\r\n\r\n{\"buyer\":7}"), "{sent}");

        order.json = None;
        order.form = Some(BTreeMap::from([("what".to_owned(), "{item} & more".to_owned())]));
        assert!(text(&order).ends_with("\r\n\r\nwhat=tea+%26+more"));
        order.headers.insert("X".to_owned(), "a\r\nb".to_owned());
        HttpRequest::order(&order, "http://shop", &values).expect_err("it would be two headers");
    }
}
