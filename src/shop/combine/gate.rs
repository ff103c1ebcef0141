//! What is sold out is said without a lock and without a write.
//!
//! Once somebody was told that an item is short, whoever wants as many asks here first: finished
//! keys are looked up, then the shelf. One look serves all who wait for one, and it begins after
//! the last of them has come, so every answer was true at a moment of its request. Whoever finds
//! enough on the shelf gets in line like everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::MOST_WAITING;
use super::line::Joined;
use crate::shop::idempotency::{self, Claim, LOOK_LIMIT, Stored};
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
        match self.ask(sku, Asking { claim: claim.clone(), reply }) {
            Joined::First => {
                let (gate, there, sku) = (self.clone(), shop.clone(), sku.clone());
                shop.running.spawn_on(async move { gate.serve(&there, &sku).await }, &shop.runtime);
            }
            Joined::Behind => {}
            Joined::Full => {
                return Err(Error::Overloaded(format!("{MOST_WAITING} requests ask for {sku}")));
            }
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Bug("a look ended without an answer".to_owned())))
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<Sku, Vec<Asking>>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, sku: &Sku, asking: Asking) -> Joined {
        let mut all = self.all();
        match all.get_mut(sku) {
            Some(line) if line.len() >= MOST_WAITING => Joined::Full,
            Some(line) => {
                line.push(asking);
                Joined::Behind
            }
            None => {
                all.insert(sku.clone(), vec![asking]);
                Joined::First
            }
        }
    }

    fn take(&self, sku: &Sku) -> Option<Vec<Asking>> {
        let mut all = self.all();
        let line = all.get_mut(sku)?;
        line.retain(|asking| !asking.reply.is_closed());
        if line.is_empty() {
            all.remove(sku);
            return None;
        }
        let rest = line.split_off(line.len().min(MOST_AT_ONCE));
        Some(std::mem::replace(line, rest))
    }

    async fn serve(&self, shop: &Shop, sku: &Sku) {
        let _closing = Closing { gate: self, sku };
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

/// Lets whoever comes next begin anew when a look ends by a panic.
struct Closing<'g> {
    gate: &'g Gate,
    sku: &'g Sku,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.gate.all().remove(self.sku);
        }
    }
}

async fn look(
    shop: &Shop,
    sku: &Sku,
    claims: &[&Claim],
) -> Result<(Vec<Option<Stored>>, Option<i64>), Error> {
    let mut connection = shop.connection().await?;
    let looking = async {
        // In this order: what made the shelf short has been committed by then, and if it was done
        // under one of these keys, the key is found.
        let stock = sqlx::query_scalar!("select stock from items where sku = $1", sku.as_str())
            .fetch_optional(&mut *connection)
            .await?;
        let stored = idempotency::look_up_all(&mut connection, claims).await?;
        Ok((stored, stock))
    };
    match timeout(LOOK_LIMIT, looking).await {
        Ok(seen) => seen,
        Err(_) => {
            drop(connection.detach());
            Err(Error::silence())
        }
    }
}
