//! What a client asks for, one request after the other.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub key: Uuid,
    /// What it is about, by its place in the script's list.
    pub subject: usize,
}

/// One client's requests.
pub trait Script: std::fmt::Debug + Send {
    /// Writes the next request over what is in `request`; `None` at the end.
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Asked>;

    /// How long the client thinks before it sends the request that was just written.
    fn think(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// `POST`s of one kind for ever (or `times`), over a list of subjects; only the key is added.
#[derive(Debug, Clone)]
pub struct Posts {
    /// Up to the value of `Idempotency-Key`.
    head: Vec<u8>,
    /// From there on, for each subject.
    tails: Arc<[Vec<u8>]>,
    at: usize,
    left: u64,
}

impl Posts {
    /// `headers` are whole lines of their own, without their ends; `bodies` are one per subject,
    /// and `from` is the subject to begin with.
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

    /// So many, and no more.
    #[must_use]
    pub fn times(self, left: u64) -> Self {
        Self { left, ..self }
    }

    /// The same for another client, whose subjects need not be written again.
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
    /// To those paths, in that order.
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

/// From a generator in this process: asking the system for each would cost as much as the rest.
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
    fn every_request_has_a_key_of_its_own_and_the_subjects_take_turns() {
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
