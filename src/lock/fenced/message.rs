//! Messages to a key's actor, from callers in this process and scripts of other processes.

use std::time::Duration;

use tokio::sync::oneshot;

use super::FencedGuard;
use super::talk::Grant;
use crate::lock::{Error, Holder, Released};

/// The response to a waiter: the guard, or the holder if the lock was not acquired.
pub(super) type Answer = Result<Result<FencedGuard, Holder>, Error>;

/// A caller that requests the lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub reply: oneshot::Sender<Answer>,
    pub joined_us: u64,
    pub only_try: bool,
    pub ttl: Duration,
}

/// A message to the actor of a key.
#[derive(Debug)]
pub(super) enum Message {
    /// A caller requests the lock.
    Join(Waiter),
    /// A guard was released or dropped.
    Released { owner: String, reply: Option<oneshot::Sender<Released>> },
    /// A guard was left to expire.
    Abandoned { owner: String },
    /// A guard needs a fence above `floor`.
    Refence { owner: String, floor: i64, reply: oneshot::Sender<Result<Option<i64>, Error>> },
    /// A script granted the lock to this process.
    Granted { owner: String, grant: Grant },
    /// Another process waits for the lock that this process holds.
    Rival,
    /// A waiter may have left.
    Look,
}

impl Message {
    /// Parses a message that a script published. Returns its key, which comes last because it may
    /// contain spaces, and the message.
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
