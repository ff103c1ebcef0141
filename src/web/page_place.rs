//! The pages whose length a visitor's file or a stored run decides: drawn off the workers, up to a
//! bound, and sent within a bound of time.
//!
//! Guarantees: a page has at most [`MAX_PAGE_BYTES`]. At most [`MAX_PAGES`] are drawn or sent at a
//! time, of which one address has three quarters, and each for [`SEND_TIMEOUT`] at most, a longer
//! file for its length at 100 kB/s: a slow reader keeps its page no longer. A request that gets no
//! place in time is rejected with `overloaded`. Tests: below, and `tests/pages/stall.rs`.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::http::StatusCode;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use askama::Template;
use tokio::time::timeout;

use super::client_stream::ConnectionPhase;
use super::offload::offload;
use super::problems::{HttpResult, Problem, ProblemType};
use super::state::app_state;
use holdfast_base::messages::message;
use holdfast_shop::budget::{Budget, BudgetPermit};

pub const MAX_PAGE_BYTES: usize = 2_000_000;
/// Pages that are drawn or sent at a time: 64 MB at most.
const MAX_PAGES: usize = 32;
const MAX_PAGES_OF_ADDRESS: usize = 24;
/// Time to wait for a place, less than a request may take: a class of 60 behind one address opens
/// the page of a run at once, when the run is over.
const PLACE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which a page must have been received: 100 kB/s for the longest.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// At which a longer text, such as a file, must be received.
const MIN_BYTES_PER_MS: usize = 100;
/// Bytes that a body hands over at a time. The connection buffers about as much, so a body lives
/// almost until its last byte is sent.
const SLICE_BYTES: usize = 16 * 1024;

static PAGES: LazyLock<Budget<String>> =
    LazyLock::new(|| Budget::new(MAX_PAGES, MAX_PAGES_OF_ADDRESS));

/// The place of a page, from before it is drawn until it is sent.
#[derive(Debug)]
pub struct PagePlace {
    permit: BudgetPermit,
    phase: Option<Rc<ConnectionPhase>>,
}

impl PagePlace {
    /// Waits for a place.
    ///
    /// # Errors
    /// `overloaded` if others have all of them, or all that one address may have.
    pub async fn take(request: &HttpRequest) -> Result<Self, Problem> {
        let address = app_state(request)?.rate_limits.address_name(request);
        let permit = timeout(PLACE_TIMEOUT, PAGES.acquire(address)).await;
        let permit = permit.ok().flatten().ok_or_else(|| {
            Problem::new(ProblemType::Overloaded, message!("problem-other-pages"))
        })?;
        let phase = request.conn_data::<Rc<ConnectionPhase>>().cloned();
        Ok(Self { permit, phase })
    }

    /// Draws a page and sends it; `draw` renders it with [`render`].
    pub async fn page(
        self,
        status: StatusCode,
        draw: impl FnOnce() -> Result<String, Problem> + Send + 'static,
    ) -> HttpResult {
        let page = offload(draw).await??;
        Ok(self.send_page(status, page))
    }

    pub fn send_page(self, status: StatusCode, page: String) -> HttpResponse {
        let mut response = HttpResponse::build(status);
        response.content_type("text/html; charset=utf-8");
        self.send(response, page)
    }

    /// Draws a text of any kind and sends it.
    pub async fn respond(
        self,
        response: HttpResponseBuilder,
        draw: impl FnOnce() -> Result<String, Problem> + Send + 'static,
    ) -> HttpResult {
        let text = offload(draw).await??;
        Ok(self.send(response, text))
    }

    pub fn send(self, mut response: HttpResponseBuilder, body: impl Into<Bytes>) -> HttpResponse {
        let body = body.into();
        if let Some(phase) = self.phase {
            phase.send_within(send_timeout(body.len()));
        }
        response.body(PlacedBody { rest: body, _permit: self.permit })
    }
}

fn send_timeout(length: usize) -> Duration {
    SEND_TIMEOUT.max(Duration::from_millis((length / MIN_BYTES_PER_MS) as u64))
}

/// Bounds the time in which each frame of an event stream is received: a slow reader keeps no
/// frame, which may be as long as a page.
#[derive(Debug)]
pub struct FrameTimeout(Option<Rc<ConnectionPhase>>);

impl FrameTimeout {
    pub fn of(request: &HttpRequest) -> Self {
        Self(request.conn_data::<Rc<ConnectionPhase>>().cloned())
    }

    /// To be called for each frame, before it is sent.
    pub fn begin(&self) {
        if let Some(phase) = &self.0 {
            phase.send_within(SEND_TIMEOUT);
        }
    }
}

/// Renders a page of at most [`MAX_PAGE_BYTES`].
///
/// # Errors
/// `payload-too-large` if it is longer.
pub fn render(page: &impl Template) -> Result<String, Problem> {
    render_within(page, MAX_PAGE_BYTES)
}

/// Renders a page of at most `max_bytes`, as [`render`] does.
pub fn render_within(page: &impl Template, max_bytes: usize) -> Result<String, Problem> {
    let mut text = BoundedText { text: String::new(), max_bytes, is_full: false };
    match page.render_into(&mut text) {
        Ok(()) => Ok(text.text),
        Err(_) if text.is_full => {
            let detail = message!("problem-page-length", max_bytes);
            Err(Problem::new(ProblemType::PayloadTooLarge, detail))
        }
        Err(error) => {
            tracing::error!(%error, "a template failed");
            Err(Problem::undrawn_page())
        }
    }
}

/// A text that refuses what would make it longer than its bound.
struct BoundedText {
    text: String,
    max_bytes: usize,
    is_full: bool,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        self.is_full |= self.text.len() + more.len() > self.max_bytes;
        if self.is_full {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

/// A body that keeps its place until it is sent, or its connection closed.
#[derive(Debug)]
struct PlacedBody {
    rest: Bytes,
    _permit: BudgetPermit,
}

impl MessageBody for PlacedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(next_slice(&mut self.rest).map(Ok))
    }
}

/// Takes the next slice of a text that is to be sent; `None` at its end.
pub fn next_slice(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.len().min(SLICE_BYTES);
    (length > 0).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[derive(Template)]
    #[template(source = "{{ text }}", ext = "txt")]
    struct TextPage {
        text: String,
    }

    #[tokio::test]
    async fn body_keeps_its_place_until_its_last_slice() {
        let budget = Budget::new(1, 1);
        let permit = budget.try_acquire("192.0.2.1".to_owned()).unwrap();
        let text = "x".repeat(SLICE_BYTES + 1);
        let mut body = PlacedBody { rest: text.clone().into(), _permit: permit };
        assert_eq!(body.size(), BodySize::Sized(text.len() as u64));

        let mut received = Vec::new();
        while let Some(Ok(slice)) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
            assert!(budget.try_acquire("192.0.2.2".to_owned()).is_none(), "it is being sent");
            received.extend_from_slice(&slice);
        }
        assert_eq!(received, text.as_bytes());
        drop(body);
        assert!(budget.try_acquire("192.0.2.2".to_owned()).is_some());
    }

    #[test]
    fn longer_page_is_refused() {
        let page = TextPage { text: "x".repeat(100) };
        assert_eq!(render_within(&page, 100).unwrap(), page.text);
        let refused = render_within(&page, 99).unwrap_err();
        assert_eq!(refused.problem_type(), ProblemType::PayloadTooLarge);
    }
}
