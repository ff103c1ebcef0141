//! What is said to a key's line: by callers in this process, and by the scripts of other processes.

use std::time::Duration;

use tokio::sync::oneshot;

use super::FencedGuard;
use super::talk::Grant;
use crate::lock::{Error, Holder, Released};

/// What a waiter gets: the guard, or who holds the lock instead.
pub(super) type Answer = Result<Result<FencedGuard, Holder>, Error>;

/// Somebody who wants the lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub reply: oneshot::Sender<Answer>,
    pub joined_us: u64,
    pub only_try: bool,
    pub ttl: Duration,
}

/// What a line is told.
#[derive(Debug)]
pub(super) enum Message {
    /// Somebody wants the lock.
    Join(Waiter),
    /// A guard was given back.
    Released { owner: String, reply: Option<oneshot::Sender<Released>> },
    /// A guard was left to expire.
    Abandoned { owner: String },
    /// A guard wants a number above `floor`.
    Refence { owner: String, floor: i64, reply: oneshot::Sender<Result<Option<i64>, Error>> },
    /// Redis granted us the lock, they say.
    Granted { owner: String, grant: Grant },
    /// Another process waits for the lock that we hold, they say.
    Rival,
    /// Somebody left; look around.
    Look,
}

impl Message {
    /// What `tell` in the scripts says, and of which key: a key may have spaces, and is the rest.
    pub(super) fn heard(word: &str) -> Option<(&str, Self)> {
        let (word, rest) = word.split_once(' ')?;
        if word == "waiting" {
            return Some((rest, Message::Rival));
        }
        let [owner, fence, rivals, key] = *rest.splitn(4, ' ').collect::<Vec<_>>() else {
            return None;
        };
        let grant = Grant { fence: fence.parse().ok()?, rivals: rivals != "0" };
        (word == "granted").then(|| (key, Message::Granted { owner: owner.to_owned(), grant }))
    }
}
