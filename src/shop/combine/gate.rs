//! What is sold out is said without a lock and without a write.
//!
//! Once somebody was told that an item is short, whoever wants as many asks here first: finished
//! keys are looked up, the orders of keys that are forgotten, and the shelf. One look serves all
//! who wait for one, and it begins after the last of them has come ([`super::coalesce`]), so every
//! answer was true at a moment of its request. Whoever finds enough on the shelf gets in line like
//! everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::timeout;

use super::coalesce::Coalescer;
use crate::shop::idempotency::{self, Claim, LOOK_LIMIT, Stored};
use crate::shop::{Error, Refusal, Shop, Sku};

/// More items are not remembered; then all are forgotten, which costs each one refusal under lock.
const MOST_REMEMBERED: usize = 10_000;

/// What is known to be short, and who asks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    short: Arc<Mutex<HashMap<Sku, i64>>>,
    asking: Coalescer<Sku, Asked, Seen>,
}

#[derive(Debug)]
struct Asked {
    claim: Claim,
    quantity: i64,
}

/// What a look showed.
#[derive(Debug)]
pub enum Seen {
    /// The key is finished, or can't be used. Whoever finds enough may have used it long ago all
    /// the same: who places the order finds that out.
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
    pub async fn look(
        &self,
        shop: &Shop,
        sku: &Sku,
        quantity: i64,
        claim: &Claim,
    ) -> Result<Seen, Error> {
        let (gate, there, item) = (self.clone(), shop.clone(), sku.clone());
        let call = move |asked: Vec<Asked>| {
            let (gate, there, item) = (gate.clone(), there.clone(), item.clone());
            async move {
                let (stock, seen) = look(&there, &item, &asked).await?;
                if let Some(stock) = stock {
                    gate.note(&item, stock);
                }
                Ok(seen)
            }
        };
        let asked = Asked { claim: claim.clone(), quantity };
        self.asking.ask(shop, sku.clone(), asked, call).await
    }
}

/// What is on the shelf, and what that means for each.
async fn look(shop: &Shop, sku: &Sku, asked: &[Asked]) -> Result<(Option<i64>, Vec<Seen>), Error> {
    let mut connection = shop.connection().await?;
    let looking = async {
        // In this order: what made the shelf short has been committed by then, and if it was done
        // under one of these keys, the key is found.
        let stock = sqlx::query_scalar!("select stock from items where sku = $1", sku.as_str())
            .fetch_optional(&mut *connection)
            .await?;
        let is_short = |asked: &Asked| stock.is_some_and(|stock| stock < asked.quantity);
        let short: Vec<&Claim> =
            asked.iter().filter(|asked| is_short(asked)).map(|asked| &asked.claim).collect();
        // And the orders before the keys: of one that was placed a moment ago, the key is found.
        let mut used = idempotency::orders_of_tokens(&mut connection, &short).await?.into_iter();
        let claims: Vec<&Claim> = asked.iter().map(|asked| &asked.claim).collect();
        let stored = idempotency::look_up_all(&mut connection, &claims).await?;
        let seen = asked.iter().zip(stored).map(|(asked, stored)| {
            let used = if is_short(asked) { used.next().flatten() } else { None };
            match (stored, used) {
                (Some(stored), _) => Seen::Settled(stored),
                (None, Some(order)) => {
                    Seen::Settled(Stored::Refused(Refusal::KeyUsed { order_id: Some(order) }))
                }
                (None, None) => Seen::Shelf(stock),
            }
        });
        Ok((stock, seen.collect()))
    };
    match timeout(LOOK_LIMIT, looking).await {
        Ok(seen) => seen,
        Err(_) => {
            drop(connection.detach());
            Err(Error::silence())
        }
    }
}
