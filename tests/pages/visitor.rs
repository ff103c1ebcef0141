//! A client that requests pages as a browser does, with cookies, and returns the raw responses.

use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};

use crate::common::Shop;

/// A visitor, of the first replica unless said otherwise.
pub struct Visitor {
    pub http: Client,
    pub base: String,
}

/// An answer, read.
pub struct Page {
    pub status: StatusCode,
    pub location: String,
    pub kind: String,
    pub text: String,
}

impl Visitor {
    /// A visitor without a session.
    pub fn new(shop: &Shop) -> Self {
        let http = Client::builder().cookie_store(true).redirect(Policy::none()).build().unwrap();
        Self { http, base: shop.replicas[0].base_url.clone() }
    }

    /// A visitor who signed in on the page; the password is the name.
    pub async fn signed_in(shop: &Shop, name: &str) -> Self {
        let visitor = Self::new(shop);
        let answer = visitor.post("/sign-in", &format!("user={name}&password={name}")).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        visitor
    }

    /// A request for that page, not sent yet.
    pub fn page_request(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base)).header("Accept", "text/html,*/*;q=0.8")
    }

    /// A form for that page, not sent yet. Its values need no escaping.
    pub fn form_request(&self, path: &str, form: &str) -> RequestBuilder {
        self.http
            .post(format!("{}{path}", self.base))
            .header("Accept", "text/html,*/*;q=0.8")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form.to_owned())
    }

    /// Goes there.
    pub async fn get(&self, path: &str) -> Page {
        Page::read(self.page_request(path).send().await.unwrap()).await
    }

    /// Sends the form.
    pub async fn post(&self, path: &str, form: &str) -> Page {
        Page::read(self.form_request(path, form).send().await.unwrap()).await
    }

    /// Puts an item in the basket, and says with which token and CSRF token it can be ordered.
    pub async fn fill_basket(&self, sku: &str, quantity: i64) -> (String, String) {
        let csrf = self.get("/basket").await.csrf();
        let form = format!("csrf={csrf}&sku={sku}&quantity={quantity}");
        let added = self.post("/basket/lines", &form).await;
        assert_eq!((added.status.as_u16(), added.location.as_str()), (303, "/basket"));
        let basket = self.get("/basket").await;
        (basket.field("token"), basket.csrf())
    }

    /// Orders what the basket of that token has in it.
    pub async fn order(&self, token: &str, csrf: &str) -> Page {
        self.post("/orders", &format!("csrf={csrf}&token={token}")).await
    }
}

impl Page {
    /// Reads an answer to its end.
    pub async fn read(response: Response) -> Self {
        let text = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (location, kind) = (text("location"), text("content-type"));
        Self { status: response.status(), location, kind, text: response.text().await.unwrap() }
    }

    /// The value of the first field of that name.
    pub fn field(&self, name: &str) -> String {
        let value = self.text.split_once(&format!("name=\"{name}\" value=\""));
        value
            .and_then(|(_, rest)| rest.split_once('"'))
            .map_or_else(String::new, |(value, _)| value.to_owned())
    }

    /// The CSRF token of its forms; empty for a stranger.
    pub fn csrf(&self) -> String {
        self.field("csrf")
    }

    /// Its text, with white space as a person sees it.
    pub fn words(&self) -> String {
        let mut words = String::new();
        let mut inside = false;
        for c in self.text.chars() {
            match c {
                '<' => inside = true,
                '>' => inside = false,
                c if !inside => words.push(c),
                _ => {}
            }
        }
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
