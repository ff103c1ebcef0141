//! The demo catalogue and the demo users, for an empty database.

use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Error;
use super::model::{Item, ItemKind};
use super::store::accounts::open_balance;
use super::store::items;
use super::{Sku, passwords};
use crate::db::Pool;
use holdfast_base::messages::Language;

const USERS: [(&str, bool); 4] =
    [("alice", false), ("bob", false), ("carol", false), ("admin", true)];
const OPENING_BALANCE_CENTS: i64 = 100_000;

/// Sku, price in cents, stock, and limit per customer. Lessons and loads do not buy these items;
/// they create their own.
const ITEMS: [(&str, i64, i64, Option<i64>); 8] = [
    ("brass-padlock", 1_450, 120, None),
    ("combination-lock", 2_300, 80, None),
    ("deadbolt", 4_900, 40, None),
    ("bike-chain", 3_750, 60, None),
    ("key-ring", 650, 300, None),
    ("strongbox", 18_900, 12, None),
    ("lock-picks", 2_950, 25, Some(2)),
    ("last-lantern", 9_900, 1, None),
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeedContents {
    pub catalogue: bool,
    pub users: bool,
}

impl SeedContents {
    pub const EVERYTHING: Self = Self { catalogue: true, users: true };
}

/// Fills an empty database; otherwise returns `false`. Concurrent calls are serialized.
pub async fn seed(pool: &Pool, contents: SeedContents) -> Result<bool, Error> {
    let users = if contents.users { &USERS[..] } else { &[] };
    let catalogue = if contents.catalogue { &ITEMS[..] } else { &[] };
    if !is_empty(&mut *pool.acquire().await?).await? {
        return Ok(false);
    }

    // Before the lock, behind which everybody who signs up would wait for them.
    let mut hashes = Vec::with_capacity(users.len());
    for (name, _) in users {
        hashes.push(passwords::hash((*name).to_owned()).await?);
    }

    let mut tx = pool.begin().await?;
    sqlx::query!("lock table users in share row exclusive mode").execute(&mut *tx).await?;
    if !is_empty(&mut tx).await? {
        return Ok(false);
    }

    let request_id = Uuid::now_v7();
    for (&(name, admin), hash) in users.iter().zip(hashes) {
        let Some(user) = super::users::insert(&mut tx, name, &hash, admin).await? else { continue };
        open_balance(&mut tx, user, OPENING_BALANCE_CENTS, "top-up", request_id).await?;
    }

    for &(sku, price_cents, stock, limit_per_user) in catalogue {
        let name = Language::English.text(&format!("goods-{sku}"));
        let name_zh = Some(Language::Chinese.text(&format!("goods-{sku}")));
        let sku = Sku::stored(sku.to_owned())?;
        let description = Language::English.text(&format!("goods-{sku}-about"));
        let item = Item::new(sku, name, price_cents, stock);
        let item = Item { name_zh, limit_per_user, description, ..item };
        items::insert(&mut tx, &item, ItemKind::Shop, request_id).await?;
    }

    tx.commit().await?;
    Ok(true)
}

pub async fn find_demo_users(pool: &Pool) -> Result<Vec<String>, Error> {
    named_like_password(pool, &USERS.map(|(name, _)| name.to_owned())).await
}

pub async fn is_demo_user(pool: &Pool, name: &str) -> Result<bool, Error> {
    Ok(!named_like_password(pool, &[name.to_owned()]).await?.is_empty())
}

/// Returns the enabled users among `names` whose password is their name.
async fn named_like_password(pool: &Pool, names: &[String]) -> Result<Vec<String>, Error> {
    let users = sqlx::query!(
        "select name, password_hash from users where name = any($1) and disabled_at is null",
        names,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    let mut found = Vec::new();
    for user in users {
        if passwords::verify(user.name.clone(), Some(user.password_hash)).await? {
            found.push(user.name);
        }
    }
    Ok(found)
}

async fn is_empty(db: &mut PgConnection) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"select not exists (select from users) and not exists (select from items) as "empty!""#
    )
    .fetch_one(db)
    .await?)
}
