//! Scripts: the requests of one client, one after the other.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::Value;
use uuid::Uuid;

/// What in a path stands for the id of the order that the request before it has placed. Without
/// one, the request is skipped.
pub const PLACED_ORDER: &str = ":order";

/// The `POST`s of one client, each with a new idempotency key: cycles through a list of subjects,
/// endlessly or up to [`Posts::limit`].
#[derive(Debug)]
pub struct Posts {
    subjects: Vec<PreparedPost>,
    at: usize,
    left: u64,
    /// The source of the think times and their upper bound.
    thinking: Option<(StdRng, Duration)>,
    has_request_id: bool,
    /// The id of the order that the next request names.
    placed: Option<String>,
}

#[derive(Debug)]
struct PreparedPost {
    /// The part before the id of an order, if the path names one.
    before_order: Option<Vec<u8>>,
    before_key: Vec<u8>,
    after_key: Vec<u8>,
}

impl Posts {
    /// Creates a script of one path. `headers` are complete lines without line ends, `bodies` has
    /// an entry per subject, and `from` is the first subject's index.
    pub fn new(
        path: &str,
        token: &str,
        headers: &[String],
        bodies: &[String],
        from: usize,
    ) -> Self {
        let subjects =
            bodies.iter().map(|body| PreparedPost::new(path, token, headers, body)).collect();
        Self::over(subjects, from, u64::MAX)
    }

    /// Creates a script of one `POST` without a body to each path.
    pub fn to_paths(paths: &[String], token: &str, headers: &[String]) -> Self {
        let subjects =
            paths.iter().map(|path| PreparedPost::new(path, token, headers, "")).collect();
        let left = paths.len() as u64;
        Self::over(subjects, 0, left)
    }

    fn over(subjects: Vec<PreparedPost>, at: usize, left: u64) -> Self {
        Self { subjects, at, left, thinking: None, has_request_id: false, placed: None }
    }

    /// Appends the subjects of another script to the cycle.
    #[must_use]
    pub fn followed_by(mut self, other: Self) -> Self {
        self.subjects.extend(other.subjects);
        self
    }

    #[must_use]
    pub fn limit(self, left: u64) -> Self {
        Self { left, ..self }
    }

    /// Adds a random pause of less than `max` before each request.
    #[must_use]
    pub fn with_think_time(self, rng: StdRng, max: Duration) -> Self {
        Self { thinking: Some((rng, max)), ..self }
    }

    /// Sends each idempotency key as the request's id, too.
    #[must_use]
    pub fn with_request_id(self) -> Self {
        Self { has_request_id: true, ..self }
    }

    /// Replaces the contents of `request` with the next request, and returns its idempotency key;
    /// `None` at the end.
    pub(super) fn next(&mut self, request: &mut Vec<u8>) -> Option<Uuid> {
        self.left = self.left.checked_sub(1)?;
        let (count, has_order) = (self.subjects.len(), self.placed.is_some());
        let mut turns = (self.at..self.at + count).map(|at| at % count);
        let subject = turns.find(|at| has_order || self.subjects[*at].before_order.is_none())?;
        let PreparedPost { before_order, before_key, after_key } = &self.subjects[subject];
        self.at = subject + 1;

        // In-process: a system call per key would cost as much as all the rest.
        let key = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut buffer = Uuid::encode_buffer();
        let key_text: &[u8] = key.hyphenated().encode_lower(&mut buffer).as_bytes();

        request.clear();
        if let Some((before_order, order)) = before_order.as_ref().zip(self.placed.take()) {
            request.extend_from_slice(before_order);
            request.extend_from_slice(order.as_bytes());
        }
        request.extend_from_slice(before_key);
        request.extend_from_slice(key_text);
        if self.has_request_id {
            request.extend_from_slice(b"\r\nX-Request-Id: ");
            request.extend_from_slice(key_text);
        }
        request.extend_from_slice(after_key);
        Some(key)
    }

    /// Reads the id in the response to the last request, if the next one names it.
    pub(super) fn note_created(&mut self, body: &[u8]) {
        let next = self.subjects.get(self.at % self.subjects.len().max(1));
        if next.is_some_and(|next| next.before_order.is_some()) {
            let body: Option<Value> = serde_json::from_slice(body).ok();
            self.placed = body.and_then(|body| Some(body["id"].as_str()?.to_owned()));
        }
    }

    /// Returns the pause before the request that was just written is sent.
    pub(super) fn think_time(&mut self) -> Duration {
        self.thinking
            .as_mut()
            .map_or(Duration::ZERO, |(rng, max)| rng.random_range(Duration::ZERO..*max))
    }
}

impl PreparedPost {
    fn new(path: &str, token: &str, headers: &[String], body: &str) -> Self {
        let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let (before_order, path) = match path.split_once(PLACED_ORDER) {
            Some((before, after)) => {
                (Some(format!("POST {before}").into_bytes()), after.to_owned())
            }
            None => (None, format!("POST {path}")),
        };
        let before_key = format!(
            "{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\n{more}Idempotency-Key: "
        );
        let after_key = format!("\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (before_key, after_key) = (before_key.into_bytes(), after_key.into_bytes());
        Self { before_order, before_key, after_key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_unique_keys_and_rotate_bodies() {
        let bodies = ["{\"a\":1}".to_owned(), "{}".to_owned()];
        let mut script = Posts::new("/x", "t", &["A: b".to_owned()], &bodies, 1).limit(3);
        let mut request = Vec::new();
        let mut keys = Vec::new();
        for subject in [1, 0, 1] {
            let key = script.next(&mut request).expect("three of them");
            let text = String::from_utf8(request.clone()).expect("text");
            let end = format!(
                "\r\nA: b\r\nIdempotency-Key: {}\r\nContent-Length: {}\r\n\r\n{}",
                key,
                bodies[subject].len(),
                bodies[subject]
            );
            assert!(text.starts_with("POST /x HTTP/1.1\r\n") && text.ends_with(&end), "{text}");
            keys.push(key);
        }
        assert!(script.next(&mut request).is_none());
        keys.dedup();
        assert_eq!(keys.len(), 3);
    }

    #[test]
    fn path_names_the_order_just_placed() {
        let cancel = [format!("/x/{PLACED_ORDER}/cancel")];
        let mut script = Posts::new("/x", "t", &[], &["{}".to_owned()], 1)
            .followed_by(Posts::to_paths(&cancel, "t", &[]));
        let next = |created: &str| {
            let mut request = Vec::new();
            script.next(&mut request).expect("it is endless");
            script.note_created(created.as_bytes());
            let text = String::from_utf8(request).expect("text");
            text.split_once(" HTTP/1.1\r\n").expect("a first line").0.to_owned()
        };

        let created = ["{\"id\":\"a\"}", "{\"order\":{}}", "not JSON", "{\"id\":\"b\"}", ""];
        let sent = created.map(next);
        let place = "POST /x";
        assert_eq!(sent, [place, "POST /x/a/cancel", place, place, "POST /x/b/cancel"]);
    }
}
