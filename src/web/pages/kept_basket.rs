//! The basket: a token, and sku and quantity of every line. It belongs to the account; without a
//! session it is in a cookie, and signing in moves it to the account.
//!
//! Every change creates a new token, so a token identifies one version of one basket and the order
//! that is placed with it. The cookie is untrusted input: a basket that cannot be parsed is an
//! empty one.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse};
use uuid::Uuid;

use super::format::format_count;
use super::rejection::FormErrors;
use super::respond::set_cookie;
use crate::web::middleware::{BASKET_COOKIE, find_caller};
use crate::web::{Problem, ProblemType, app_state, see_other};
use holdfast_base::messages::{Language, message};
use holdfast_shop::command::place_order::{MAX_LINES, MAX_QUANTITY};
use holdfast_shop::model::RequestedLine;
use holdfast_shop::{Error, IdempotencyKey, Shop, Sku, UserId, baskets};

/// Attempts to change an account's basket that other requests change, too.
const MAX_ATTEMPTS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basket {
    token: Uuid,
    lines: BTreeMap<Sku, i64>,
    /// The content of the account's basket from which this one was read: a change replaces that
    /// content only.
    kept: Option<String>,
}

impl Basket {
    /// Reads the basket of the request's user, or without a session that of the cookie.
    pub async fn load(request: &HttpRequest) -> Result<Self, Problem> {
        match find_caller(request).await? {
            Some(caller) => Ok(Self::of_account(&app_state(request)?.shop, caller.id).await?),
            None => Ok(Self::of_cookie(request)),
        }
    }

    pub async fn of_account(shop: &Shop, user: UserId) -> Result<Self, Error> {
        let kept = baskets::read(shop, user).await?;
        let basket = kept.as_deref().and_then(Self::parse).unwrap_or_else(Self::empty);
        Ok(Self { kept, ..basket })
    }

    pub fn of_cookie(request: &HttpRequest) -> Self {
        let cookie = BASKET_COOKIE.read(request);
        cookie.and_then(|text| Self::parse(&text)).unwrap_or_else(Self::empty)
    }

    fn empty() -> Self {
        Self { token: Uuid::new_v4(), lines: BTreeMap::new(), kept: None }
    }

    fn parse(text: &str) -> Option<Self> {
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
        Some(Self { token, lines, kept: None })
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

    /// Keeps the basket: with the account, or in the response's cookie. Returns `false`, and keeps
    /// nothing, if the account has another basket by now than the one that was read.
    pub async fn keep(
        &self,
        request: &HttpRequest,
        response: &mut HttpResponse,
    ) -> Result<bool, Problem> {
        let Some(caller) = find_caller(request).await? else {
            set_cookie(response, &BASKET_COOKIE.build(request, self.format()))?;
            return Ok(true);
        };
        Ok(self.keep_in_account(&app_state(request)?.shop, caller.id).await?)
    }

    async fn keep_in_account(&self, shop: &Shop, user: UserId) -> Result<bool, Error> {
        baskets::replace(shop, user, self.kept.as_deref(), &self.format()).await
    }

    /// Adds the lines of another basket, as many as fit. Of an item in both the larger quantity
    /// counts, not the sum: a sign-in form that is sent twice doubles nothing. Returns whether it
    /// changed.
    fn merge(&mut self, other: &Self) -> bool {
        let before = self.lines.clone();
        for (sku, quantity) in &other.lines {
            let is_full = self.lines.len() >= MAX_LINES;
            match self.lines.get_mut(sku) {
                Some(present) => *present = (*present).max(*quantity),
                None if is_full => {}
                None => {
                    self.lines.insert(sku.clone(), *quantity);
                }
            }
        }

        let has_changed = self.lines != before;
        if has_changed {
            self.renew_token();
        }
        has_changed
    }

    fn format(&self) -> String {
        let lines: String = self.lines.iter().map(|(sku, n)| format!(".{sku}:{n}")).collect();
        format!("{}{lines}", self.token)
    }
}

/// Changes the basket and redirects to it. The error is the text for the form's field.
///
/// Of two changes of an account's basket at once, the second is made of the result of the first.
pub(super) async fn change(
    request: &HttpRequest,
    change: impl Fn(&mut Basket) -> Result<(), String>,
) -> Result<Result<HttpResponse, String>, Problem> {
    for _ in 0..MAX_ATTEMPTS {
        let mut basket = Basket::load(request).await?;
        if let Err(why) = change(&mut basket) {
            return Ok(Err(why));
        }
        let mut response = see_other("/basket");
        if basket.keep(request, &mut response).await? {
            return Ok(Ok(response));
        }
    }
    Err(too_many_changes())
}

/// Moves the browser's basket to the account of the session `token`, which begins with this
/// response. The session has begun already: if this fails, the basket stays in its cookie.
pub(super) async fn move_to_account(
    request: &HttpRequest,
    token: &str,
    response: &mut HttpResponse,
) {
    if let Err(problem) = try_to_move(request, token, response).await {
        tracing::warn!(?problem, "a basket was not moved to its account");
    }
}

async fn try_to_move(
    request: &HttpRequest,
    token: &str,
    response: &mut HttpResponse,
) -> Result<(), Problem> {
    if BASKET_COOKIE.read(request).is_none() {
        return Ok(());
    }
    let state = app_state(request)?;
    let shop = &state.shop;
    // The look-up is that of the next request, which finds it in the cache.
    let Some(caller) = state.sessions.find(shop, token).await? else { return Ok(()) };

    let (user, of_browser) = (caller.id, Basket::of_cookie(request));

    for _ in 0..MAX_ATTEMPTS {
        // Nothing to move is no change, as in the second of two equal sign-ins.
        let mut basket = Basket::of_account(shop, user).await?;
        if !basket.merge(&of_browser) || basket.keep_in_account(shop, user).await? {
            return set_cookie(response, &BASKET_COOKIE.removal(request));
        }
    }
    Err(too_many_changes())
}

fn too_many_changes() -> Problem {
    Problem::new(ProblemType::Overloaded, message!("problem-busy-basket"))
}

#[derive(Debug)]
pub(super) struct QuantityError {
    pub sku: Sku,
    pub input: String,
    pub why: String,
}

impl QuantityError {
    /// Returns what the form shows: the text of its field, and what is wrong with it.
    pub fn into_form(self) -> (String, FormErrors) {
        (self.input, FormErrors::field("quantity", &self.why))
    }
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
        assert_eq!(Basket::parse(&basket.format()), Some(basket.clone()));
        assert_eq!(basket.units(), 10);
    }

    #[test]
    fn malformed_kept_basket_is_ignored() {
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
            assert_eq!(Basket::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn merged_basket_has_the_larger_quantities() {
        let basket = |lines: &[(&str, &str)]| {
            let mut basket = Basket::empty();
            for (name, quantity) in lines {
                basket.add(sku(name), quantity, ENGLISH).unwrap();
            }
            basket
        };
        let of_browser = basket(&[("tea", "3"), ("cup", "1")]);
        let mut of_account = basket(&[("tea", "2"), ("pot", "5")]);
        assert!(of_account.merge(&of_browser));
        let all = basket(&[("tea", "3"), ("cup", "1"), ("pot", "5")]);
        assert_eq!(of_account.lines, all.lines);

        let token = of_account.token();
        assert!(!of_account.merge(&of_browser), "the second of two equal sign-ins");
        assert_eq!((&of_account.lines, of_account.token()), (&all.lines, token));

        let mut full = Basket::empty();
        for n in 0..50 {
            full.add(sku(&format!("sku-{n}")), "1", ENGLISH).unwrap();
        }
        assert!(!full.merge(&of_browser) && full.lines.len() == 50);
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
