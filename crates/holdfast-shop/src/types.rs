//! Value types of the domain: a parsed value need not be checked again.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

use holdfast_lock::LockKey;

use holdfast_base::output::format_cents;

/// Identifier of an item in orders and locks: 1 to 64 characters of `a-z0-9-`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema, sqlx::Type,
)]
#[serde(try_from = "String")]
#[sqlx(transparent)]
#[schema(value_type = String, pattern = "^[a-z0-9-]{1,64}$", example = "tea-sencha")]
pub struct Sku(String);

impl Sku {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn throw_away() -> Self {
        Self(format!("lab-{}", Uuid::now_v7().simple()))
    }

    /// Returns whether it has the form of a throw-away item's. The item's kind is in its row.
    pub fn is_throw_away(&self) -> bool {
        let id = self.0.strip_prefix("lab-").filter(|id| id.len() == 32);
        id.is_some_and(|id| id.bytes().all(|b| b.is_ascii_hexdigit()))
    }

    pub fn lock_key(&self) -> LockKey {
        lock_key(format!("{{sku:{self}}}"))
    }
}

impl TryFrom<String> for Sku {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits { Ok(Self(text)) } else { Err("a sku is 1 to 64 of a-z, 0-9 and -") }
    }
}

impl fmt::Display for Sku {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Serialize, Deserialize, ToSchema, sqlx::Type)]
#[sqlx(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub Uuid);

impl UserId {
    pub fn lock_key(self) -> LockKey {
        lock_key(format!("{{user:{}}}", self.0))
    }

    /// Returns the id of the user's lab account. It is computed, so that a payment in the lab needs
    /// no lookup.
    pub fn lab_account(self) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("lab account of {}", self.0)).into();
        let [start @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = digest;
        Self(uuid::Builder::from_custom_bytes(start).into_uuid())
    }

    /// Of a lock that admits one order of a user at a time, on the pages. Not the balance's key, so
    /// that a payment does not wait for an order.
    pub fn buyer_lock_key(self) -> LockKey {
        lock_key(format!("{{user:{}}}:ordering", self.0))
    }
}

#[derive(Serialize, Deserialize, ToSchema, sqlx::Type)]
#[sqlx(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub Uuid);

impl OrderId {
    /// Returns the key of a lock on the order itself, not on the values that it changes.
    pub fn lock_key(self) -> LockKey {
        lock_key(format!("{{order:{}}}", self.0))
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An amount of money, in cents. Displayed as `1,234.50`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub struct Cents(pub i64);

impl Cents {
    /// Formats the amount with its currency: `$1,000.50`, `−$14.50`.
    pub fn money(self) -> String {
        let sign = if self.0 < 0 { "−" } else { "" };
        format!("{sign}${}", Self(self.0.saturating_abs()))
    }

    pub fn minus(self) -> Self {
        Self(-self.0)
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_cents(self.0))
    }
}

/// An idempotency key: 16 to 255 visible ASCII characters, without quotes and backslashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn generate() -> Self {
        Self(Uuid::new_v4().to_string())
    }
}

impl TryFrom<String> for IdempotencyKey {
    type Error = &'static str;

    /// A quoted key (as in the draft standard) and a bare one are the same key.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&text);
        let fits = (16..=255).contains(&bare.len())
            && bare.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
        if fits {
            Ok(Self(bare.to_owned()))
        } else {
            Err("an idempotency key is 16 to 255 visible ASCII characters")
        }
    }
}

fn lock_key(name: String) -> LockKey {
    LockKey::new(name).unwrap_or_else(|_| unreachable!("the name has text in it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_thousands_separators() {
        let shown: Vec<String> =
            [0, 5, 100, 123_456, -100_000_000].map(|cents| Cents(cents).to_string()).into();
        assert_eq!(shown, ["0.00", "0.05", "1.00", "1,234.56", "−1,000,000.00"]);
    }

    #[test]
    fn quoted_key_equals_bare_key() {
        let bare = IdempotencyKey::try_from("0123456789abcdef".to_owned());
        assert_eq!(bare, IdempotencyKey::try_from("\"0123456789abcdef\"".to_owned()));
        assert!(bare.is_ok());
    }

    #[test]
    fn keys_out_of_range_are_rejected() {
        let long = "x".repeat(256);
        for text in ["", "short", "0123456789abcde", "0123456789abcdé!", "0123456789 abcdef", &long]
        {
            assert!(IdempotencyKey::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn sku_is_lower_case_letters_digits_and_dashes() {
        for text in ["", "Tea", "tea cup", "té", &"x".repeat(65)] {
            assert!(Sku::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert!(Sku::try_from("tea-2".to_owned()).is_ok());
    }
}
