//! Idempotency keys: the identity of one execution of a command.
//!
//! Guarantees, by Postgres alone: of all requests with one key (per user, method and path), on all
//! replicas and through all crashes, at most one is executed; the others receive its response, byte
//! for byte. The statement that writes the changes also inserts the key record with the response.
//!
//! Responses are kept for [`RETENTION_HOURS`]. For an order, the key and the order's id are kept
//! forever; the key records of other commands are purged after that time.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{IdempotencyKey, OrderId, Sku, UserId};

pub const RETENTION_HOURS: i64 = 24;

/// As the key records of orders name [`Operation::PlaceOrder`].
pub(super) const ORDERS_PATH: &str = "/api/orders";

/// The operation for which a key is sent. A key record names it by the method and the path of the
/// API, and its id depends on them: a key that an earlier build stored is found only if they stay
/// as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    PlaceOrder,
    PayOrder(OrderId),
    CancelOrder(OrderId),
    RefundOrder(OrderId),
    TopUp,
    CreateItem,
    EditItem(Sku),
    SetLimit(Sku),
    Restock(Sku),
    /// Disables the user of that name, or enables it again.
    DisableUser(String),
    EndSessions(String),
    SetPassword(String),
    /// Of a job, which sends no key.
    ExpireOrders,
}

impl Operation {
    pub(super) fn method(&self) -> &'static str {
        match self {
            Operation::EditItem(_) | Operation::DisableUser(_) => "PATCH",
            Operation::SetLimit(_) => "PUT",
            _ => "POST",
        }
    }

    pub(super) fn path(&self) -> Cow<'static, str> {
        let path = match self {
            Operation::PlaceOrder => return ORDERS_PATH.into(),
            Operation::PayOrder(order) => format!("/api/orders/{order}/pay"),
            Operation::CancelOrder(order) => format!("/api/orders/{order}/cancel"),
            Operation::RefundOrder(order) => format!("/api/orders/{order}/refund"),
            Operation::TopUp => return "/api/me/top-ups".into(),
            Operation::CreateItem => return "/api/items".into(),
            Operation::EditItem(sku) => format!("/api/items/{sku}"),
            Operation::SetLimit(sku) => format!("/api/items/{sku}/limit"),
            Operation::Restock(sku) => format!("/api/items/{sku}/stock"),
            Operation::DisableUser(name) => format!("/api/admin/users/{name}"),
            Operation::EndSessions(name) => format!("/api/admin/users/{name}/end-sessions"),
            Operation::SetPassword(name) => format!("/api/admin/users/{name}/password"),
            Operation::ExpireOrders => return "/expiry".into(),
        };
        path.into()
    }

    /// Returns the id of a key record: the first 16 bytes of the SHA-256 of user, method, path and
    /// key.
    pub(super) fn record_id(&self, user: UserId, key: &IdempotencyKey) -> Uuid {
        let text = format!("{} {} {} {}", user.0, self.method(), self.path(), key.as_str());
        let digest: [u8; 32] = Sha256::digest(text).into();
        let [start @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = digest;
        Uuid::from_bytes(start)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The record's id: [`Operation::record_id`].
    pub id: Uuid,
    pub user: UserId,
    pub operation: Operation,
    pub key: IdempotencyKey,
    pub fingerprint: [u8; 32],
    /// True if the server generated the key because the client sent none. Such a key has no
    /// duplicate, and needs no lock in Redis.
    pub is_generated: bool,
    /// The id of the order that this request places; a request for another change has none. It
    /// distinguishes the record that this request inserted from that of a duplicate.
    pub new_order: Option<OrderId>,
}

impl IdempotencyRequest {
    /// Creates a request with the client's key or, without one, a generated key. `content` is the
    /// parsed request.
    pub fn new(
        user: UserId,
        operation: Operation,
        key: Option<IdempotencyKey>,
        content: &str,
    ) -> Self {
        let is_generated = key.is_none();
        let key = key.unwrap_or_else(IdempotencyKey::generate);
        let id = operation.record_id(user, &key);
        let fingerprint = Sha256::digest(content).into();
        Self { id, user, operation, key, fingerprint, is_generated, new_order: None }
    }

    /// Returns the lock's name in Redis after `holdfast:token:`, with the path except for orders.
    pub(super) fn lock_name(&self) -> String {
        let name = format!("{{{}:{}}}", self.user.0, self.key.as_str());
        match &self.operation {
            Operation::PlaceOrder => name,
            operation => format!("{name}:{}", operation.path()),
        }
    }

    pub(super) fn fingerprint_hex(&self) -> String {
        self.fingerprint.iter().flat_map(|byte| [byte >> 4, byte & 15].map(hex_digit)).collect()
    }
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserId = UserId(Uuid::from_u128(0x018f_2f6e_0000_7000_8000_0000_0000_0001));
    const ORDER: OrderId = OrderId(Uuid::from_u128(0x018f_2f6e_0000_7000_8000_0000_0000_0002));

    /// As when the first keys were stored; replicas of two builds agree on the lock's name.
    #[test]
    fn record_ids_and_lock_names_stay_as_they_were() {
        let sku = || Sku::try_from("tea".to_owned()).unwrap();
        let alice = || "alice".to_owned();
        let key = IdempotencyKey::try_from("0123456789abcdef".to_owned()).unwrap();
        for (operation, id, of_path) in [
            (Operation::PlaceOrder, "e85227c4-90f6-4247-fb6a-0b68bd6c681f", ""),
            (
                Operation::PayOrder(ORDER),
                "fbf06942-84d5-681f-b24b-ca040ecdadc1",
                ":/api/orders/ORDER/pay",
            ),
            (
                Operation::CancelOrder(ORDER),
                "49ba1465-ab9d-8242-a149-d9bb9ecf6861",
                ":/api/orders/ORDER/cancel",
            ),
            (
                Operation::RefundOrder(ORDER),
                "216c9d67-d4e5-d7eb-1d05-4861853afc30",
                ":/api/orders/ORDER/refund",
            ),
            (Operation::TopUp, "13fdffa5-cef6-93fe-c07b-9ba33beadcf2", ":/api/me/top-ups"),
            (Operation::CreateItem, "d9c3e6b6-723d-dc24-b4b4-8def9aee7fcc", ":/api/items"),
            (Operation::EditItem(sku()), "3385a3c3-341c-39f2-eeda-5da1246a46bd", ":/api/items/tea"),
            (
                Operation::SetLimit(sku()),
                "14c3c77d-ef35-5d42-f0db-8d1d6eb6bad5",
                ":/api/items/tea/limit",
            ),
            (
                Operation::Restock(sku()),
                "19a54412-5177-a45b-0263-a29bea1e323d",
                ":/api/items/tea/stock",
            ),
            (
                Operation::DisableUser(alice()),
                "9ce097b5-9167-0738-6933-b6b057e3aaf6",
                ":/api/admin/users/alice",
            ),
            (
                Operation::EndSessions(alice()),
                "18e7b0fa-77a5-3081-830a-78fb0905ab24",
                ":/api/admin/users/alice/end-sessions",
            ),
            (
                Operation::SetPassword(alice()),
                "383c1c52-69f8-d52d-ff66-51e6ee732d53",
                ":/api/admin/users/alice/password",
            ),
        ] {
            let request = IdempotencyRequest::new(USER, operation, Some(key.clone()), "");
            assert_eq!(request.id.to_string(), id, "{:?}", request.operation);
            let of_path = of_path.replace("ORDER", &ORDER.to_string());
            let name = format!("{{{}:{}}}{of_path}", USER.0, key.as_str());
            assert_eq!(request.lock_name(), name);
        }
    }
}
