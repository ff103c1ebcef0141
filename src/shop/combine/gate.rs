//! What is sold out is said without a lock and without a write.
//!
//! Once somebody was told that an item is short, whoever wants as many asks here first: finished
//! keys are looked up, then the shelf. One look serves all who wait for one, and it begins after
//! the last of them has come, so every answer was true at a moment of its request. Whoever finds
//! enough on the shelf gets in line like everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::shop::idempotency::{self, Claim, Stored};
use crate::shop::{Error, Shop, Sku};

/// More items are not remembered; then all are forgotten, which costs each one refusal under lock.
const MOST_REMEMBERED: usize = 10_000;
/// One look answers for so many at most.
const MOST_AT_ONCE: usize = 512;

/// What is known to be short, and who asks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    short: Arc<Mutex<HashMap<Sku, i64>>>,
    asking: Arc<Mutex<HashMap<Sku, Vec<Asking>>>>,
}

#[derive(Debug)]
struct Asking {
    claim: Claim,
    reply: oneshot::Sender<Result<Seen, Error>>,
}

/// What a look showed.
#[derive(Debug)]
pub enum Seen {
    /// The key is finished, or can't be used.
    Settled(Stored),
    /// So many are on the shelf; `None` when there is no such item.
    Shelf(Option<i64>),
}

impl Gate {
    /// Remembers how many there were when somebody wanted more.
    pub fn note(&self, sku: &Sku, available: i64) {
        let mut short = self.short.lock().unwrap_or_else(PoisonError::into_inner);
        if short.len() >= MOST_REMEMBERED {
            short.clear();
        }
        short.insert(sku.clone(), available);
    }

    /// Whether somebody was refused for no more than that.
    pub fn may_be_short(&self, sku: &Sku, quantity: i64) -> bool {
        let short = self.short.lock().unwrap_or_else(PoisonError::into_inner);
        short.get(sku).is_some_and(|available| *available < quantity)
    }

    /// Looks the key up, and at the shelf, together with all who ask at the same time.
    ///
    /// # Errors
    /// Postgres's.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn look(&self, shop: &Shop, sku: &Sku, claim: &Claim) -> Result<Seen, Error> {
        let (reply, answer) = oneshot::channel();
        if self.ask(sku, Asking { claim: claim.clone(), reply }) {
            let (gate, shop_there, sku) = (self.clone(), shop.clone(), sku.clone());
            shop.running
                .spawn_on(async move { gate.serve(&shop_there, &sku).await }, &shop.runtime);
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Bug("a look ended without an answer".to_owned())))
    }

    /// Whether somebody must begin to look.
    fn ask(&self, sku: &Sku, asking: Asking) -> bool {
        let mut all = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(sku) {
            Some(line) => {
                line.push(asking);
                false
            }
            None => {
                all.insert(sku.clone(), vec![asking]);
                true
            }
        }
    }

    fn take(&self, sku: &Sku) -> Option<Vec<Asking>> {
        let mut all = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let line = all.get_mut(sku)?;
        if line.is_empty() {
            all.remove(sku);
            return None;
        }
        let rest = line.split_off(line.len().min(MOST_AT_ONCE));
        Some(std::mem::replace(line, rest))
    }

    async fn serve(&self, shop: &Shop, sku: &Sku) {
        while let Some(asking) = self.take(sku) {
            let claims: Vec<&Claim> = asking.iter().map(|asking| &asking.claim).collect();
            match look(shop, sku, &claims).await {
                Ok((stored, stock)) => {
                    if let Some(stock) = stock {
                        self.note(sku, stock);
                    }
                    for (asking, stored) in asking.into_iter().zip(stored) {
                        let seen = stored.map_or(Seen::Shelf(stock), Seen::Settled);
                        let _ = asking.reply.send(Ok(seen));
                    }
                }
                Err(error) => {
                    for asking in asking {
                        let _ = asking.reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

async fn look(
    shop: &Shop,
    sku: &Sku,
    claims: &[&Claim],
) -> Result<(Vec<Option<Stored>>, Option<i64>), Error> {
    let mut connection = shop.connection().await?;
    // In this order: what made the shelf short has been committed by then, and if it was done under
    // one of these keys, the key is found.
    let stock = sqlx::query_scalar!("select stock from items where sku = $1", sku.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    let stored = idempotency::look_up_all(&mut connection, claims).await?;
    Ok((stored, stock))
}
