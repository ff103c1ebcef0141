//! The basket, in a cookie: a token, and sku and quantity of every line.
//!
//! Every change creates a new token, so a token identifies one version of one basket and the order
//! that is placed with it. The cookie is untrusted input: a basket that cannot be parsed is an
//! empty one.

use std::collections::BTreeMap;

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use uuid::Uuid;

use super::format::format_count;
use super::language;
use crate::messages::Language;
use crate::shop::command::place_order::{MAX_LINES, MAX_QUANTITY};
use crate::shop::model::RequestedLine;
use crate::shop::{IdempotencyKey, Sku};
use crate::web::middleware::BASKET_COOKIE;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basket {
    token: Uuid,
    lines: BTreeMap<Sku, i64>,
}

impl Basket {
    pub fn of(request: &HttpRequest) -> Self {
        let cookie = BASKET_COOKIE.read(request);
        cookie.and_then(|text| Self::read(&text)).unwrap_or_else(Self::empty)
    }

    fn empty() -> Self {
        Self { token: Uuid::new_v4(), lines: BTreeMap::new() }
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let token = Uuid::parse_str(parts.next()?).ok()?;
        let mut lines = BTreeMap::new();
        for part in parts {
            let (sku, quantity) = part.split_once(':')?;
            let quantity = quantity.parse().ok().filter(|n| (1..=MAX_QUANTITY).contains(n))?;
            lines.insert(Sku::try_from(sku.to_owned()).ok()?, quantity);
            if lines.len() > MAX_LINES {
                return None;
            }
        }
        Some(Self { token, lines })
    }

    /// Returns the token of this version as an idempotency key.
    pub fn key(&self) -> Option<IdempotencyKey> {
        IdempotencyKey::try_from(self.token.to_string()).ok()
    }

    /// Returns the token of this version as the value of a form's field.
    pub fn token(&self) -> String {
        self.token.to_string()
    }

    pub fn lines(&self) -> &BTreeMap<Sku, i64> {
        &self.lines
    }

    /// Returns the lines as an order request has them.
    pub fn order_lines(&self) -> Vec<RequestedLine> {
        let lines = self.lines.iter();
        lines
            .map(|(sku, quantity)| RequestedLine { sku: sku.clone(), quantity: *quantity })
            .collect()
    }

    pub fn units(&self) -> i64 {
        self.lines.values().sum()
    }

    /// Adds units of an item.
    pub fn add(&mut self, sku: Sku, quantity: i64) -> Result<(), QuantityRule> {
        let present = self.lines.get(&sku).copied().unwrap_or(0);
        if !(1..=MAX_QUANTITY).contains(&quantity) {
            return Err(QuantityRule::Range { least: 1 });
        }
        if present + quantity > MAX_QUANTITY {
            return Err(QuantityRule::MaxWith { present });
        }
        self.set(sku, present + quantity)
    }

    /// Sets the quantity of an item; 0 removes it.
    pub fn set(&mut self, sku: Sku, quantity: i64) -> Result<(), QuantityRule> {
        if !(0..=MAX_QUANTITY).contains(&quantity) {
            return Err(QuantityRule::Range { least: 0 });
        }
        if quantity == 0 {
            self.lines.remove(&sku);
        } else if self.lines.len() >= MAX_LINES && !self.lines.contains_key(&sku) {
            return Err(QuantityRule::MaxLines);
        } else {
            self.lines.insert(sku, quantity);
        }
        self.renew_token();
        Ok(())
    }

    /// Creates a new token: the next submission is a new order.
    pub fn renew_token(&mut self) {
        self.token = Uuid::new_v4();
    }

    pub fn cookie(&self, request: &HttpRequest) -> Cookie<'static> {
        BASKET_COOKIE.build(request, self.format())
    }

    fn format(&self) -> String {
        let lines: String = self.lines.iter().map(|(sku, n)| format!(".{sku}:{n}")).collect();
        format!("{}{lines}", self.token)
    }
}

/// A rule that a quantity breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuantityRule {
    /// It is no number from `least` to the maximum.
    Range { least: i64 },
    /// With those in the basket, it exceeds the maximum.
    MaxWith { present: i64 },
    /// The basket is full.
    MaxLines,
}

impl QuantityRule {
    /// Returns the rule as the text for a form's field.
    fn text(self, language: Language) -> String {
        let max = ("max", format_count(MAX_QUANTITY).into());
        match self {
            Self::Range { least } => {
                language.text_with("shop-quantity-range", &[("least", least.into()), max])
            }
            Self::MaxWith { present } => {
                let present = ("present", format_count(present).into());
                language.text_with("shop-quantity-most", &[present, max])
            }
            Self::MaxLines => {
                language.text_with("shop-quantity-lines", &[("max", MAX_LINES.into())])
            }
        }
    }
}

/// A rejected quantity: the item, the input, and the text for the form's field.
#[derive(Debug, Clone)]
pub(super) struct QuantityError {
    pub sku: Sku,
    pub input: String,
    pub why: String,
}

impl QuantityError {
    pub fn new(request: &HttpRequest, sku: Sku, input: &str, rule: QuantityRule) -> Self {
        let why = rule.text(language::of_request(request));
        Self { sku, input: input.to_owned(), why }
    }
}

pub(super) fn parse_quantity(text: &str, least: i64) -> Result<i64, QuantityRule> {
    text.trim().parse().map_err(|_| QuantityRule::Range { least })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sku(text: &str) -> Sku {
        Sku::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn basket_changes_token_and_round_trips() {
        let mut basket = Basket::empty();
        let mut tokens = vec![basket.token()];
        basket.add(sku("tea"), 2).unwrap();
        tokens.push(basket.token());
        basket.add(sku("tea"), 1).unwrap();
        tokens.push(basket.token());
        basket.set(sku("cup"), 7).unwrap();
        assert!(!tokens.contains(&basket.token()) && tokens[1] != tokens[2]);
        assert_eq!(Basket::read(&basket.format()), Some(basket.clone()));
        assert_eq!(basket.units(), 10);
    }

    #[test]
    fn malformed_basket_cookie_is_ignored() {
        let token = Uuid::new_v4();
        for text in [
            "".to_owned(),
            "no-token.tea:1".to_owned(),
            format!("{token}.tea"),
            format!("{token}.tea:0"),
            format!("{token}.tea:1001"),
            format!("{token}.tea:-1"),
            format!("{token}.Tea:1"),
            format!("{token}.tea:99999999999999999999"),
            (0..51).fold(token.to_string(), |text, n| format!("{text}.sku-{n}:1")),
        ] {
            assert_eq!(Basket::read(&text), None, "{text}");
        }
    }

    #[test]
    fn basket_is_bounded_in_items_and_units() {
        let mut basket = Basket::empty();
        for n in 0..50 {
            basket.add(sku(&format!("sku-{n}")), 1_000).unwrap();
        }
        assert!(basket.add(sku("one-more"), 1).is_err());
        assert!(basket.add(sku("sku-0"), 1).is_err());
        let before = basket.clone();
        assert!(basket.set(sku("sku-0"), 1_001).is_err());
        assert_eq!(basket, before);
        assert!(basket.format().len() < 4_000);
    }
}
