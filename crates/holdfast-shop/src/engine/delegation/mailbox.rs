//! The answers of other replicas, each for the leader that forwarded its command.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_lock::LockKey;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::engine::reply::Answer;

/// Answers, each with the number of its command.
type Answers = Vec<(u64, Answer)>;

/// The mailboxes of this process, by the keys of their leaders. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Mailboxes(Arc<Mutex<HashMap<LockKey, UnboundedSender<Answers>>>>);

impl Mailboxes {
    /// Opens the mailbox of a key. One that an earlier leader of the key has opened gets nothing
    /// more: its answers are not awaited.
    pub fn open(&self, key: LockKey) -> Mailbox {
        // Only replicas of this shop can fill it.
        let (sender, receiver) = unbounded_channel();
        self.0.lock().insert(key.clone(), sender.clone());
        Mailbox { mailboxes: self.clone(), key, sender, receiver, arrived: Vec::new() }
    }

    /// Delivers answers to the leader of `key`, if it has a mailbox.
    pub fn deliver(&self, key: &LockKey, answers: Answers) {
        if let Some(mailbox) = self.0.lock().get(key) {
            // One that is closed is not listed any more.
            let _ = mailbox.send(answers);
        }
    }
}

/// The mailbox of one leader; closed on drop.
#[derive(Debug)]
pub(in crate::engine) struct Mailbox {
    mailboxes: Mailboxes,
    key: LockKey,
    sender: UnboundedSender<Answers>,
    receiver: UnboundedReceiver<Answers>,
    /// The answers that have arrived and are not taken yet.
    arrived: Answers,
}

impl Mailbox {
    /// Waits until there are answers.
    ///
    /// # Cancel safety
    /// A dropped future loses no answer.
    pub async fn arrival(&mut self) {
        if self.arrived.is_empty() {
            self.arrived = self.receiver.recv().await.unwrap_or_default();
        }
    }

    /// Takes the answers that have arrived.
    pub fn take(&mut self) -> Answers {
        let mut answers = std::mem::take(&mut self.arrived);
        while let Ok(more) = self.receiver.try_recv() {
            answers.extend(more);
        }
        answers
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut mailboxes = self.mailboxes.0.lock();
        // The next leader of the key may have opened its own already.
        if mailboxes.get(&self.key).is_some_and(|current| current.same_channel(&self.sender)) {
            mailboxes.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn mailbox_of_an_ended_leader_closes_no_later_one() {
        let mailboxes = Mailboxes::default();
        let key = LockKey::new("{sku:tea}").unwrap();
        let early = mailboxes.open(key.clone());
        let mut late = mailboxes.open(key.clone());
        drop(early);

        mailboxes.deliver(&key, vec![(1, Answer::Failed)]);
        late.arrival().now_or_never().expect("an answer");
        mailboxes.deliver(&key, vec![(2, Answer::Failed)]);
        let numbers: Vec<u64> = late.take().into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(late.arrival().now_or_never().is_none(), "they are taken");

        drop(late);
        assert!(mailboxes.0.lock().is_empty());
    }
}
