//! Searches the orders of all users, for admins.
//!
//! A search looks through a window of the newest orders before its cursor, so its cost does not
//! grow with the history; what it looked through in vain is behind the next cursor.
//!
//! A whole number, name or sku finds that one alone; any other text what contains it.

use std::collections::HashMap;

use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use super::orders::select;
use super::text_search::containing;
use super::{catalog, users};
use crate::failure::Error;
use crate::model::Order;
use crate::{OrderId, Shop, Sku, UserId};

/// The orders that one search looks through.
pub const MAX_SCANNED: i64 = 5_000;

#[derive(Debug, Clone, Default)]
pub struct OrderSearch {
    pub id: Option<IdPart>,
    pub user: Option<UserPart>,
    pub sku: Option<SkuPart>,
    pub status: Option<FoundStatus>,
    /// With the orders of lab items only.
    pub with_lab: bool,
}

/// The texts in the fields of a search; a field without a text is left out.
#[derive(Debug, Clone, Default)]
pub struct SearchFields<'a> {
    pub id: &'a str,
    pub user: &'a str,
    pub sku: &'a str,
    pub status: Option<FoundStatus>,
    pub with_lab: bool,
}

/// The id of an order, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdPart {
    Whole(OrderId),
    /// Lower-case hexadecimal digits.
    Part(String),
}

/// A user, or a pattern of the names of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserPart {
    Whole(UserId),
    Part(String),
}

/// An item, or a pattern of the skus of items, and of their names as they were sold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkuPart {
    Whole(Sku),
    Part(String),
}

/// A status by which orders are found.
#[derive(
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum FoundStatus {
    Pending,
    Paid,
    Cancelled,
    /// Not paid in time: cancelled for that reason, or about to be.
    Expired,
    Refunded,
}

impl FoundStatus {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl OrderSearch {
    /// Returns the search of these fields; `None` if no order can match.
    pub async fn of(shop: &Shop, fields: SearchFields<'_>) -> Result<Option<Self>, Error> {
        let SearchFields { id, user, sku, status, with_lab } = fields;
        let [id, user, sku] = [id, user, sku].map(str::trim);
        let mut search = Self { status, with_lab, ..Self::default() };

        if !id.is_empty() {
            // As pages and letters show it, perhaps with a sign before it.
            let Some(id) = IdPart::parse(id.trim_start_matches('#')) else { return Ok(None) };
            search.id = Some(id);
        }
        if !user.is_empty() {
            let Some(pattern) = users::name_pattern(user) else { return Ok(None) };
            search.user = Some(match users::id(shop, user).await? {
                Some(user) => UserPart::Whole(user),
                None => UserPart::Part(pattern),
            });
        }
        if !sku.is_empty() {
            let Some(pattern) = containing(sku) else { return Ok(None) };
            let whole = match Sku::try_from(sku.to_lowercase()) {
                Ok(sku) => catalog::item(shop, &sku).await?,
                Err(_) => None,
            };
            search.sku = Some(match whole {
                Some(item) => SkuPart::Whole(item.sku),
                None => SkuPart::Part(pattern),
            });
        }
        Ok(Some(search))
    }
}

/// An order and its user.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FoundOrder {
    /// The user name.
    pub user: String,
    pub order: Order,
}

#[derive(Debug, Default)]
pub struct FoundOrders {
    pub orders: Vec<FoundOrder>,
    /// The cursor behind what was looked through, if there is more. The page may be short, even
    /// empty, and the next one still goes on.
    pub more: Option<OrderId>,
}

impl IdPart {
    /// Parses a whole id, or 4 and more digits of one; dashes do not count.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.replace('-', "").to_lowercase();
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        match digits.len() {
            32 if is_hex => Uuid::parse_str(&digits).ok().map(OrderId).map(Self::Whole),
            4..32 if is_hex => Some(Self::Part(digits)),
            _ => None,
        }
    }
}

/// Returns a page of the orders that match, newest first, older than `after`.
pub async fn search(
    shop: &Shop,
    search: &OrderSearch,
    after: Option<OrderId>,
    length: i64,
) -> Result<FoundOrders, Error> {
    let search = search.clone();
    let read = shop.pool.read(move |db| {
        let search = search.clone();
        async move { search_in(db, &search, after, length).await }.boxed()
    });
    Ok(read.await?.0)
}

pub async fn search_in(
    db: &mut PgConnection,
    search: &OrderSearch,
    after: Option<OrderId>,
    length: i64,
) -> sqlx::Result<FoundOrders> {
    let (mut window, is_cut) = window(db, search, after).await?;
    let behind = window.last().copied().filter(|_| is_cut);
    if let Some(IdPart::Part(part)) = &search.id {
        window.retain(|id| id.0.simple().to_string().contains(part));
    }

    let mut ids = matching(db, search, &window, length + 1).await?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let more = if ids.len() > length {
        ids.truncate(length);
        ids.last().copied()
    } else {
        behind
    };

    Ok(FoundOrders { orders: with_users(db, &ids).await?, more })
}

/// Returns the user of an order.
pub async fn owner(shop: &Shop, id: OrderId) -> Result<Option<(UserId, String)>, Error> {
    let owner = sqlx::query!(
        r#"select u.id as "id: UserId", u.name
             from orders o join users u on u.id = o.user_id where o.id = $1"#,
        id.0,
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    Ok(owner.map(|owner| (owner.id, owner.name)))
}

/// Returns the orders to look through, newest first, and whether older ones follow.
async fn window(
    db: &mut PgConnection,
    search: &OrderSearch,
    after: Option<OrderId>,
) -> sqlx::Result<(Vec<OrderId>, bool)> {
    if let Some(IdPart::Whole(id)) = search.id {
        let is_ahead = after.is_none_or(|after| id < after);
        return Ok((Vec::from_iter(is_ahead.then_some(id)), false));
    }
    let before = after.map_or(Uuid::max(), |order| order.0);

    // Two statements, each with an index of its own: their plans do not know the arguments.
    let ids = match &search.user {
        None | Some(UserPart::Part(_)) => {
            sqlx::query_scalar!(
                r#"select id as "id: OrderId" from orders
                    where id < $1 order by id desc limit $2"#,
                before,
                MAX_SCANNED,
            )
            .fetch_all(db)
            .await?
        }
        Some(UserPart::Whole(user)) => {
            sqlx::query_scalar!(
                r#"select id as "id: OrderId" from orders
                    where user_id = $3 and id < $1 order by id desc limit $2"#,
                before,
                MAX_SCANNED,
                user.0,
            )
            .fetch_all(db)
            .await?
        }
    };

    let is_cut = i64::try_from(ids.len()) == Ok(MAX_SCANNED);
    Ok((ids, is_cut))
}

/// Returns the first `limit` of the orders that match, newest first.
async fn matching(
    db: &mut PgConnection,
    search: &OrderSearch,
    window: &[OrderId],
    limit: i64,
) -> sqlx::Result<Vec<OrderId>> {
    let (user, user_pattern) = match &search.user {
        Some(UserPart::Whole(user)) => (Some(user.0), None),
        Some(UserPart::Part(pattern)) => (None, Some(pattern.as_str())),
        None => (None, None),
    };
    let (sku, sku_pattern) = match &search.sku {
        Some(SkuPart::Whole(sku)) => (Some(sku.as_str()), None),
        Some(SkuPart::Part(pattern)) => (None, Some(pattern.as_str())),
        None => (None, None),
    };

    sqlx::query_scalar!(
        r#"select o.id as "id: OrderId" from orders o
            where o.id = any($1)
              and ($2::uuid is null or o.user_id = $2)
              and ($8::text is null
                   or exists (select from users u where u.id = o.user_id and u.name ~ $8))
              and case $3::text
                      when 'expired' then
                          o.status = 'pending' and o.expires_at <= clock_timestamp()
                          or o.status = 'cancelled' and exists (
                              select from stock_ledger e
                               where e.order_id = o.id and e.reason = 'expiry')
                      else $3 is null or o.status = $3 end
              and ($4::text is null
                   or exists (select from order_lines l where l.order_id = o.id and l.sku = $4))
              and ($7::text is null
                   or exists (select from order_lines l
                               where l.order_id = o.id
                                 and (l.sku ~ $7 or l.name ~ $7 or l.name_zh ~ $7)))
              and ($5 or exists (select from order_lines l
                                   join items i on i.sku = l.sku and i.kind = 'shop'
                                  where l.order_id = o.id))
            order by o.id desc limit $6"#,
        window as &[OrderId],
        user,
        search.status.map(FoundStatus::name),
        sku,
        search.with_lab,
        limit,
        sku_pattern,
        user_pattern,
    )
    .fetch_all(db)
    .await
}

async fn with_users(db: &mut PgConnection, ids: &[OrderId]) -> sqlx::Result<Vec<FoundOrder>> {
    let users = sqlx::query!(
        r#"select o.id as "id: OrderId", u.name
             from orders o join users u on u.id = o.user_id where o.id = any($1)"#,
        ids as &[OrderId],
    )
    .fetch_all(&mut *db)
    .await?;
    let mut users: HashMap<OrderId, String> =
        users.into_iter().map(|row| (row.id, row.name)).collect();

    let orders = select(db, None, ids).await?.into_iter();
    let found = orders.map(|order| {
        let user = users.remove(&order.id).unwrap_or_default();
        FoundOrder { user, order }
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_found_whole_or_by_a_part() {
        let id = Uuid::now_v7();
        let (dashed, plain) = (id.to_string(), id.simple().to_string());
        for text in [&dashed, &plain, &dashed.to_uppercase()] {
            assert_eq!(IdPart::parse(text), Some(IdPart::Whole(OrderId(id))), "{text}");
        }
        let part = |text: &str| IdPart::parse(text) == Some(IdPart::Part(plain[20..].to_owned()));
        assert!(part(&plain[20..]) && part(&dashed[24..].to_uppercase()));
        for text in ["", "abc", "wxyz", "12 4", "abcd%", &format!("{plain}0")] {
            assert_eq!(IdPart::parse(text), None, "{text}");
        }
    }
}
