//! A finished key is looked up before its request is refused, also where there is no room: whoever
//! has lost an answer has it then, and need not come again.
//!
//! When there is no room many are refused at once, and a look-up each would cost Postgres more than
//! the work that is done. So one look-up serves all who have come meanwhile; and where even these
//! are too many, they are refused without one, which says no more than *come again with the same
//! key*.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::MOST_AT_ONCE;
use crate::shop::Shop;
use crate::shop::idempotency::{Claim, Stored};

/// So many wait for a look-up: one that is under way, and the next.
const MOST_ASKING: usize = 2 * MOST_AT_ONCE;

/// Who asks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Looks(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    asking: Vec<Asking>,
    served: bool,
}

#[derive(Debug)]
struct Asking {
    claim: Claim,
    reply: oneshot::Sender<Option<Stored>>,
}

impl Looks {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored under a key; nothing when nothing is, or when it can't be looked up now.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn look(&self, shop: &Shop, claim: &Claim) -> Option<Stored> {
        let (reply, answer) = oneshot::channel();
        let serve = {
            let mut line = self.line();
            if line.asking.len() >= MOST_ASKING {
                return None;
            }
            line.asking.push(Asking { claim: claim.clone(), reply });
            !std::mem::replace(&mut line.served, true)
        };
        if serve {
            let (looks, there) = (self.clone(), shop.clone());
            shop.running.spawn_on(async move { looks.serve(&there).await }, &shop.runtime);
        }
        answer.await.ok().flatten()
    }

    async fn serve(&self, shop: &Shop) {
        let _closing = Closing(self);
        while let Some(asking) = self.take() {
            let claims: Vec<&Claim> = asking.iter().map(|asking| &asking.claim).collect();
            // When Postgres does not answer, nobody is told more than that there is no room.
            let stored = shop.look(&claims).await.unwrap_or_default();
            let stored = stored.into_iter().chain(std::iter::repeat_with(|| None));
            for (asking, stored) in asking.into_iter().zip(stored) {
                let _ = asking.reply.send(stored);
            }
        }
    }

    fn take(&self) -> Option<Vec<Asking>> {
        let mut line = self.line();
        line.asking.retain(|asking| !asking.reply.is_closed());
        if line.asking.is_empty() {
            line.served = false;
            return None;
        }
        let rest = line.asking.len().min(MOST_AT_ONCE);
        let rest = line.asking.split_off(rest);
        Some(std::mem::replace(&mut line.asking, rest))
    }
}

/// Lets whoever comes next begin anew when a look-up ends by a panic.
struct Closing<'l>(&'l Looks);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.line() = Line::default();
        }
    }
}
