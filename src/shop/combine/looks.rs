//! A finished key is looked up before its request is refused, also where there is no room: whoever
//! has lost an answer has it then, and need not come again.
//!
//! When there is no room many are refused at once, and a look-up each would cost Postgres more than
//! the work that is done. So one look-up at a time, on one connection, serves all who have come
//! meanwhile ([`super::coalesce`]).
//!
//! Does not guarantee the answer: who finds [`super::MOST_WAITING`] before them, who would wait for
//! longer than they want to, and whoever asks while Postgres is away, is refused without it,
//! because a refusal that comes late holds up more than it saves. Nor is an order looked for whose
//! answer was forgotten. So `overloaded` and `idempotency-key-in-flight` say nothing about the key
//! but *ask again with the same one*; whatever it has done is told then, and is not done twice.

use std::time::Duration;

use tokio::time::timeout;

use super::coalesce::Coalescer;
use crate::shop::Shop;
use crate::shop::idempotency::{Claim, Stored};

/// Who asks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Looks(Coalescer<(), Claim, Option<Stored>>);

impl Looks {
    /// What is stored under a key; nothing when nothing is, or when it can't be looked up in that
    /// time.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn look(&self, shop: &Shop, claim: &Claim, within: Duration) -> Option<Stored> {
        let there = shop.clone();
        let call = move |claims: Vec<Claim>| {
            let there = there.clone();
            async move { there.look(&claims.iter().collect::<Vec<_>>()).await }
        };
        let asking = self.0.ask(shop, (), claim.clone(), call);
        timeout(within, asking).await.ok()?.ok().flatten()
    }
}
