//! A rejected form opens in its first invalid field, which is in view and described by its error.

use holdfast_testkit::{TestShop, until};
use serde_json::{Value, json};

use crate::browser::Browser;

/// Sends a form with these fields, without the browser's own checks.
const SEND: &str = "
    const [selector, fields] = arguments;
    const form = document.querySelector(selector);
    document.querySelectorAll('details').forEach((it) => { it.open = true; });
    for (const [name, value] of Object.entries(fields)) {
        const field = form.elements[name];
        if (!(field instanceof RadioNodeList)) {
            field.value = value;
            continue;
        }
        // A choice that the form does not offer.
        field.forEach((it) => { it.disabled = true; });
        form.append(Object.assign(document.createElement('input'), { type: 'hidden', name, value }));
    }
    form.noValidate = true;
    form.requestSubmit(form.querySelector('button[type=submit]'));";

/// Returns the field in focus: its name, whether it is the first invalid one and in view, and what
/// describes it.
const FOCUSED: &str = "
    const field = document.activeElement;
    const described = (field.getAttribute('aria-describedby') ?? '').split(' ');
    const error = described.map((id) => document.getElementById(id)).find((it) => it?.matches('.wrong'));
    const box = field.getBoundingClientRect();
    const below = error?.getBoundingClientRect();
    // A group is announced by its legend, and may be higher than the window.
    const end = field.matches('fieldset') ? below?.bottom : Math.max(box.bottom, below?.bottom);
    return {
        id: field.id,
        isFirst: document.querySelector('[aria-describedby$=-wrong]') === field,
        isInView: box.top >= 0 && end <= innerHeight,
        autofocus: document.querySelectorAll('[autofocus]').length,
        error: error?.textContent ?? '',
    };";

async fn send(browser: &Browser, path: &str, form: &str, fields: Value) -> Value {
    browser.go(path).await;
    browser.find(form).await;
    browser.driver.execute(SEND, vec![json!(form), fields]).await.unwrap();
    browser.find("p.wrong").await;
    let mut focused = Value::Null;
    until("a field has the focus", async || {
        let found = browser.driver.execute(FOCUSED, vec![]).await;
        focused = found.map(|found| found.json().clone()).unwrap_or_default();
        focused["error"].as_str().is_some_and(|error| !error.is_empty())
    })
    .await;
    focused
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_form_opens_in_its_first_invalid_field() {
    let shop = TestShop::start(1).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    let mut wrong = Vec::new();
    let mut check = async |forms: Vec<(&str, &str, Value, &str)>| {
        for (path, form, fields, expected) in forms {
            let focused = send(&browser, path, form, fields).await;
            let is_right = focused["isFirst"] == true && focused["isInView"] == true;
            if focused["id"] != expected || !is_right || focused["autofocus"] != 1 {
                wrong.push(format!("{path} {form}: {focused}"));
            }
        }
    };

    check(vec![
        ("/sign-in", "form.stack", json!({ "user": "admin", "password": "no" }), "password"),
        ("/sign-up", "form.stack", json!({ "user": "No!", "password": "short" }), "user"),
        ("/sign-up", "form.stack", json!({ "user": "dora", "password": "short" }), "password"),
    ])
    .await;
    browser.go("/sign-in").await;
    browser.sign_in("admin").await;
    browser.until_path("/shop").await;
    browser.go("/items/deadbolt").await;
    browser.click("#buy").await;
    browser.until_path("/basket").await;

    let stock = "form[action$='/stock']";
    let item = json!({ "sku": "bolt", "name": "Bolt", "price": "1", "stock": "many" });
    check(vec![
        ("/admin", "#add", json!({ "sku": "No", "name": "" }), "sku"),
        ("/admin", "#add", json!({ "sku": "bolt", "name": "Bolt", "price": "x" }), "price"),
        ("/admin", "#add", item, "stock"),
        ("/admin/items/deadbolt", "#edit", json!({ "name": " " }), "name"),
        ("/admin/items/deadbolt", "#edit", json!({ "limit_per_user": "0" }), "limit"),
        ("/admin/items/deadbolt", stock, json!({ "delta": "0", "reason": "order" }), "delta"),
        ("/admin/users/alice", "form[action$='/password']", json!({ "new": "short" }), "new"),
        ("/account", "form.row", json!({ "amount": "-5" }), "amount"),
        ("/account/security", "form.stack", json!({ "old": "no", "new": "long enough" }), "old"),
        ("/account/security", "form.stack", json!({ "old": "admin", "new": "short" }), "new"),
        ("/items/deadbolt", "form.buy", json!({ "quantity": "many" }), "quantity"),
        ("/basket", "form.change", json!({ "quantity": "5000" }), "quantity-deadbolt"),
        ("/lab/runs", "form.load", json!({ "orders": "-1", "seed": "x" }), "orders"),
        ("/lab/runs", "form.load", json!({ "strategies": "x" }), "strategies"),
        ("/lab/runs", "#open", json!({}), "file"),
        ("/lab/judged", "#open", json!({}), "file"),
        ("/lab/lessons/lost-update", "div.asked form", json!({ "guess": "9" }), "guess"),
        ("/lab/lessons/lost-update", "div.asked form", json!({ "buyers": "0" }), "buyers"),
    ])
    .await;
    assert!(wrong.is_empty(), "{wrong:#?}");
    browser.close().await;
}
