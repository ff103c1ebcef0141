//! Scripts: the requests of one client, one after the other.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub key: Uuid,
    /// Index of the subject in the script's list.
    pub subject: usize,
}

/// One client's requests.
pub trait Script: std::fmt::Debug + Send {
    /// Replaces the contents of `request` with the next request; `None` at the end.
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Asked>;

    /// Returns the pause before the request that was just written is sent.
    fn think(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// `POST`s to one path, endless or limited by [`Posts::times`], cycling through a list of subjects,
/// each with a new idempotency key.
#[derive(Debug, Clone)]
pub struct Posts {
    /// The request up to the value of `Idempotency-Key`.
    head: Vec<u8>,
    /// The rest of the request, per subject.
    tails: Arc<[Vec<u8>]>,
    at: usize,
    left: u64,
}

impl Posts {
    /// Creates a script. `headers` are complete lines without line ends, `bodies` has an entry per
    /// subject, and `from` is the first subject's index.
    pub fn new(
        path: &str,
        token: &str,
        headers: &[String],
        bodies: &[String],
        from: usize,
    ) -> Self {
        let tail = |body: &String| {
            format!("\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        };
        let tails = bodies.iter().map(tail).collect();
        Self { head: head(path, token, headers), tails, at: from, left: u64::MAX }
    }

    /// Limits the script to `left` requests.
    #[must_use]
    pub fn times(self, left: u64) -> Self {
        Self { left, ..self }
    }

    /// Creates the script of another client, which shares the prebuilt subjects.
    pub fn also(&self, path: &str, token: &str, headers: &[String], from: usize) -> Self {
        let head = head(path, token, headers);
        Self { head, tails: Arc::clone(&self.tails), at: from, left: self.left }
    }
}

impl Script for Posts {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Asked> {
        self.left = self.left.checked_sub(1)?;
        let subject = self.at % self.tails.len().max(1);
        let tail = self.tails.get(subject)?;
        self.at = subject + 1;
        let key = fresh_key();
        request.clear();
        request.extend_from_slice(&self.head);
        request.extend_from_slice(
            key.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes(),
        );
        request.extend_from_slice(tail);
        Some(Asked { key, subject })
    }
}

/// One `POST` without a body to each of a list of paths.
#[derive(Debug)]
pub struct Visits {
    paths: Vec<String>,
    token: String,
    headers: Vec<String>,
    at: usize,
}

impl Visits {
    /// Creates a script that visits `paths` in order.
    pub fn new(paths: Vec<String>, token: &str, headers: &[String]) -> Self {
        Self { paths, token: token.to_owned(), headers: headers.to_vec(), at: 0 }
    }
}

impl Script for Visits {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Asked> {
        let path = self.paths.get(self.at)?;
        let asked = Asked { key: fresh_key(), subject: self.at };
        self.at += 1;
        *request = head(path, &self.token, &self.headers);
        request.extend_from_slice(asked.key.to_string().as_bytes());
        request.extend_from_slice(b"\r\nContent-Length: 0\r\n\r\n");
        Some(asked)
    }
}

/// Returns a random UUID. In-process: a system call per key would cost as much as all the rest.
fn fresh_key() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

fn head(path: &str, token: &str, headers: &[String]) -> Vec<u8> {
    let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n{more}Idempotency-Key: "
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_unique_keys_and_rotate_bodies() {
        let bodies = ["{\"a\":1}".to_owned(), "{}".to_owned()];
        let mut script = Posts::new("/x", "t", &["A: b".to_owned()], &bodies, 1).times(3);
        let mut request = Vec::new();
        let mut keys = Vec::new();
        for subject in [1, 0, 1] {
            let asked = script.next(&mut request).expect("three of them");
            let text = String::from_utf8(request.clone()).expect("text");
            let end = format!(
                "\r\nA: b\r\nIdempotency-Key: {}\r\nContent-Length: {}\r\n\r\n{}",
                asked.key,
                bodies[subject].len(),
                bodies[subject]
            );
            assert_eq!(asked.subject, subject);
            assert!(text.starts_with("POST /x HTTP/1.1\r\n") && text.ends_with(&end), "{text}");
            keys.push(asked.key);
        }
        assert!(script.next(&mut request).is_none());
        keys.dedup();
        assert_eq!(keys.len(), 3);
    }
}
