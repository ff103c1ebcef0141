//! A client that requests pages as a browser does, with cookies, and returns the raw responses.

use holdfast_testkit::TestShop;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};

/// A client of the first replica, with a cookie jar.
pub struct Visitor {
    pub http: Client,
    pub base: String,
}

pub struct Page {
    pub status: StatusCode,
    pub location: String,
    pub kind: String,
    pub text: String,
}

impl Visitor {
    pub fn new(shop: &TestShop) -> Self {
        let http = Client::builder().cookie_store(true).redirect(Policy::none()).build().unwrap();
        Self { http, base: shop.replicas[0].base_url.clone() }
    }

    /// Creates a visitor who signed in with the form; the password is the name.
    pub async fn signed_in(shop: &TestShop, name: &str) -> Self {
        let visitor = Self::new(shop);
        let response = visitor.post("/sign-in", &format!("user={name}&password={name}")).await;
        assert_eq!(response.status, 303, "{}", response.text);
        visitor
    }

    pub fn page_request(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base)).header("Accept", "text/html,*/*;q=0.8")
    }

    /// Prepares a form, whose values must need no escaping.
    pub fn form_request(&self, path: &str, form: &str) -> RequestBuilder {
        self.http
            .post(format!("{}{path}", self.base))
            .header("Accept", "text/html,*/*;q=0.8")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form.to_owned())
    }

    pub async fn get(&self, path: &str) -> Page {
        Page::read(self.page_request(path).send().await.unwrap()).await
    }

    pub async fn get_in(&self, language: &str, path: &str) -> Page {
        let request = self.page_request(path).header("Accept-Language", language);
        Page::read(request.send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, form: &str) -> Page {
        Page::read(self.form_request(path, form).send().await.unwrap()).await
    }

    /// Adds an item to the basket; returns the basket's token and the CSRF token.
    pub async fn fill_basket(&self, sku: &str, quantity: i64) -> (String, String) {
        let csrf = self.get("/basket").await.csrf();
        let form = format!("csrf={csrf}&sku={sku}&quantity={quantity}");
        let added = self.post("/basket/lines", &form).await;
        assert_eq!((added.status.as_u16(), added.location.as_str()), (303, "/basket"));
        let basket = self.get("/basket").await;
        (basket.field("token"), basket.csrf())
    }

    /// Orders an item; returns the path of the order and the CSRF token.
    pub async fn buy(&self, sku: &str, quantity: i64) -> (String, String) {
        let (token, csrf) = self.fill_basket(sku, quantity).await;
        (self.order(&token, &csrf).await.location, csrf)
    }

    pub async fn order(&self, token: &str, csrf: &str) -> Page {
        self.post("/orders", &format!("csrf={csrf}&token={token}")).await
    }
}

impl Page {
    pub async fn read(response: Response) -> Self {
        let text = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (location, kind) = (text("location"), text("content-type"));
        Self { status: response.status(), location, kind, text: response.text().await.unwrap() }
    }

    /// Returns the value of the first field of that name.
    pub fn field(&self, name: &str) -> String {
        value_in(&self.text, name).to_owned()
    }

    /// Returns the CSRF token of its forms; empty without a session.
    pub fn csrf(&self) -> String {
        self.field("csrf")
    }

    /// Returns the form that is sent to that path, as it is sent without any input by a person.
    pub fn hidden_fields(&self, path: &str) -> String {
        let (_, form) = self.text.split_once(&format!("action=\"{path}\"")).unwrap();
        let (form, _) = form.split_once("</form>").unwrap();
        let mut sent = form_urlencoded::Serializer::new(String::new());
        for field in form.split("<input type=\"hidden\" name=\"").skip(1) {
            let (name, rest) = field.split_once("\" value=\"").unwrap();
            sent.append_pair(name, &unescaped(rest.split('"').next().unwrap()));
        }
        sent.finish()
    }

    /// Returns the form of an item's settings as it is on the page, with these inputs changed.
    pub fn settings(&self, changed: &[(&str, &str)]) -> String {
        let (_, form) = self.text.split_once("id=\"edit\"").unwrap();
        let mut sent = form_urlencoded::Serializer::new(String::new());
        for name in ["csrf", "key"] {
            sent.append_pair(name, value_in(form, name));
        }
        for name in ["name", "name_zh", "price", "description", "hidden", "limit_per_user"] {
            let was_name = format!("was_{name}");
            let was = unescaped(value_in(form, &was_name));
            let now = changed.iter().find(|(input, _)| *input == name).map(|(_, now)| *now);
            sent.append_pair(name, now.unwrap_or(&was)).append_pair(&was_name, &was);
        }
        sent.finish()
    }

    /// Returns its text without tags, with white space collapsed.
    pub fn words(&self) -> String {
        let mut words = String::new();
        let mut in_tag = false;
        for c in self.text.chars() {
            match c {
                '<' => in_tag = true,
                '>' => in_tag = false,
                c if !in_tag => words.push(c),
                _ => {}
            }
        }
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Returns the value of the first field of that name; empty if there is none.
fn value_in<'t>(text: &'t str, name: &str) -> &'t str {
    let value = text.split_once(&format!("name=\"{name}\" value=\""));
    value.and_then(|(_, rest)| rest.split_once('"')).map_or("", |(value, _)| value)
}

/// Returns the text that a browser reads from an attribute.
pub fn unescaped(value: &str) -> String {
    let escapes = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    escapes.iter().fold(value.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}
