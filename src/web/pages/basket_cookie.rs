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
use crate::web::middleware::BASKET_COOKIE;
use holdfast_base::messages::Language;
use holdfast_shop::command::place_order::{MAX_LINES, MAX_QUANTITY};
use holdfast_shop::model::RequestedLine;
use holdfast_shop::{IdempotencyKey, Sku};

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

    pub fn key(&self) -> Option<IdempotencyKey> {
        IdempotencyKey::try_from(self.token.to_string()).ok()
    }

    pub fn token(&self) -> String {
        self.token.to_string()
    }

    pub fn lines(&self) -> &BTreeMap<Sku, i64> {
        &self.lines
    }

    pub fn order_lines(&self) -> Vec<RequestedLine> {
        let lines = self.lines.iter();
        lines
            .map(|(sku, quantity)| RequestedLine { sku: sku.clone(), quantity: *quantity })
            .collect()
    }

    pub fn units(&self) -> i64 {
        self.lines.values().sum()
    }

    /// Adds units of an item. The error is the text for the form's field.
    pub fn add(&mut self, sku: Sku, quantity: &str, language: Language) -> Result<(), String> {
        let present = self.lines.get(&sku).copied().unwrap_or(0);
        let quantity = parse_quantity(quantity, 1, language)?;

        if present + quantity > MAX_QUANTITY {
            let variables =
                [("present", present.into()), ("max", format_count(MAX_QUANTITY).into())];
            return Err(language.text_with("shop-quantity-most", &variables));
        }

        if self.lines.len() >= MAX_LINES && present == 0 {
            let variables = [("max", MAX_LINES.into())];
            return Err(language.text_with("shop-quantity-lines", &variables));
        }

        self.lines.insert(sku, present + quantity);
        self.renew_token();
        Ok(())
    }

    /// Changes the quantity of a line; 0 removes it.
    pub fn change(&mut self, sku: &Sku, quantity: &str, language: Language) -> Result<(), String> {
        let quantity = parse_quantity(quantity, 0, language)?;
        if quantity == 0 {
            self.lines.remove(sku);
        } else if let Some(line) = self.lines.get_mut(sku) {
            *line = quantity;
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

#[derive(Debug, Clone)]
pub(super) struct QuantityError {
    pub sku: Sku,
    pub input: String,
    pub why: String,
}

fn parse_quantity(text: &str, least: i64, language: Language) -> Result<i64, String> {
    let quantity = text.trim().parse().ok();
    quantity.filter(|quantity| (least..=MAX_QUANTITY).contains(quantity)).ok_or_else(|| {
        let variables = [("least", least.into()), ("max", format_count(MAX_QUANTITY).into())];
        language.text_with("shop-quantity-range", &variables)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: Language = Language::English;

    fn sku(text: &str) -> Sku {
        Sku::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn basket_changes_token_and_round_trips() {
        let mut basket = Basket::empty();
        let mut tokens = vec![basket.token()];
        basket.add(sku("tea"), "2", ENGLISH).unwrap();
        tokens.push(basket.token());
        basket.change(&sku("tea"), "3", ENGLISH).unwrap();
        tokens.push(basket.token());
        basket.add(sku("cup"), "7", ENGLISH).unwrap();
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
            basket.add(sku(&format!("sku-{n}")), "1000", ENGLISH).unwrap();
        }
        let before = basket.clone();
        assert!(basket.add(sku("one-more"), "1", ENGLISH).is_err());
        assert!(basket.add(sku("sku-0"), "1", ENGLISH).is_err());
        assert!(basket.change(&sku("sku-0"), "1001", ENGLISH).is_err());
        assert_eq!(basket, before);
        assert!(basket.format().len() < 4_000);
    }
}
