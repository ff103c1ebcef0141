//! Scripts: the requests of one client, one after the other.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use uuid::Uuid;

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
}

#[derive(Debug)]
struct PreparedPost {
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
        Self { subjects, at: from, left: u64::MAX, thinking: None, has_request_id: false }
    }

    /// Creates a script of one `POST` without a body to each path.
    pub fn to_paths(paths: &[String], token: &str, headers: &[String]) -> Self {
        let subjects =
            paths.iter().map(|path| PreparedPost::new(path, token, headers, "")).collect();
        let left = paths.len() as u64;
        Self { subjects, at: 0, left, thinking: None, has_request_id: false }
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
        let subject = self.at % self.subjects.len().max(1);
        let PreparedPost { before_key, after_key } = self.subjects.get(subject)?;
        self.at = subject + 1;

        // In-process: a system call per key would cost as much as all the rest.
        let key = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut buffer = Uuid::encode_buffer();
        let key_text: &[u8] = key.hyphenated().encode_lower(&mut buffer).as_bytes();

        request.clear();
        request.extend_from_slice(before_key);
        request.extend_from_slice(key_text);
        if self.has_request_id {
            request.extend_from_slice(b"\r\nX-Request-Id: ");
            request.extend_from_slice(key_text);
        }
        request.extend_from_slice(after_key);
        Some(key)
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
        let before_key = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\n{more}Idempotency-Key: "
        );
        let after_key = format!("\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        Self { before_key: before_key.into_bytes(), after_key: after_key.into_bytes() }
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
}
