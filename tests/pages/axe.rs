//! Every page in every state, examined by axe-core: no violation of any impact at three widths, nor
//! in the dark scheme. A new page gets its line in [`states`].

use std::time::Instant;

use holdfast_testkit::{TestShop, id_of, until};
use serde_json::json;
use thirtyfour::prelude::*;

use crate::axe_core::{self, axe};
use crate::browser::Browser;
use crate::judged::service_page;
use crate::lab::{ID, oversold, with_run};
use crate::visitor::Visitor;

const WIDTHS: [u32; 3] = [320, 768, 1920];
/// Of the colors: what is shown between these widths is shown at one of them, and no color depends
/// on the width.
const COLOR_WIDTHS: [u32; 2] = [320, 1920];

/// Opens the file of a judgement.
const OPEN_JUDGEMENT: &str = concat!(
    "const judgement = ",
    include_str!("judgement.json"),
    "; const transfer = new DataTransfer();
     transfer.items.add(new File([JSON.stringify(judgement)], 'judgement.json'));
     const form = document.querySelector('#open');
     form.file.files = transfer.files;
     form.requestSubmit()"
);

/// Leaves one of the operations of each kind: they have one template, and all of them would take as
/// long as twenty other pages.
const ONE_OPERATION_OF_EACH_KIND: &str = "const kinds = new Set();
    for (const operation of document.querySelectorAll('article.operation')) {
        const part = (it) => `${it.tagName}.${it.className} ${!it.textContent.trim()}`;
        const kind = [...new Set([...operation.querySelectorAll('*')].map(part))].sort().join();
        if (kinds.has(kind)) operation.remove();
        kinds.add(kind);
    }";

struct PageState {
    name: &'static str,
    /// The name of the user, who has signed in; empty for a visitor.
    user: &'static str,
    path: String,
    language: &'static str,
    /// A script that leads from the loaded page to the state.
    script: &'static str,
    /// What exists when the state is reached.
    until: &'static str,
}

fn state(name: &'static str, user: &'static str, path: impl Into<String>) -> PageState {
    PageState { name, user, path: path.into(), language: "en", script: "", until: "main" }
}

impl PageState {
    fn after(mut self, script: &'static str, until: &'static str) -> Self {
        (self.script, self.until) = (script, until);
        self
    }

    fn chinese(mut self) -> Self {
        self.language = "zh";
        self
    }
}

/// The orders of alice, each in one status.
struct Orders {
    pending: String,
    unaffordable: String,
    paid: String,
    refunded: String,
    cancelled: String,
    expired: String,
}

async fn make_orders(shop: &TestShop) -> Orders {
    let alice = shop.sign_in("alice").await;
    let place = async |sku: &str, quantity| id_of(&alice.orders(sku, quantity).ok().await);
    let orders = Orders {
        pending: place("deadbolt", 2).await,
        unaffordable: place("strongbox", 6).await,
        paid: place("key-ring", 1).await,
        refunded: place("brass-padlock", 1).await,
        cancelled: place("bike-chain", 1).await,
        expired: place("lock-picks", 1).await,
    };
    alice.pays(&orders.paid).ok().await;
    alice.pays(&orders.refunded).ok().await;
    alice.refunds(&orders.refunded).ok().await;
    alice.cancels(&orders.cancelled).ok().await;
    let over = "update orders set expires_at = created_at where id = $1::uuid";
    sqlx::query(over).bind(&orders.expired).execute(&shop.pool).await.unwrap();
    // The last lantern is sold out.
    place("last-lantern", 1).await;
    orders
}

fn judged_states() -> Vec<PageState> {
    vec![
        state("judged locks", "", "/lab/judged"),
        state("course", "", "/lab/course"),
        state("judgement", "", "/lab/judged").after(OPEN_JUDGEMENT, ".saved-verdict.loss"),
        state("judgement wrong", "", "/lab/judged").after(
            "const form = document.querySelector('#open');
             form.noValidate = true; form.requestSubmit()",
            "#file-wrong",
        ),
    ]
}

/// What a player and a voter see of their own.
fn states_of_participant() -> Vec<PageState> {
    vec![
        state("lesson answered", "admin", "/lab/lessons/lost-update").after(
            "const form = document.querySelector('.asked form');
             form.querySelector('[name=guess]').checked = true;
             form.action = '/lab/lessons/lost-update/answers';
             form.submit()",
            ".own-answer",
        ),
        state("scheduler", "admin", "/lab/scheduler"),
        state("scheduler game", "admin", "/lab/scheduler")
            .after("document.querySelector('button[value=fence]').click()", "#step-A"),
        state("scheduler with an open game", "admin", "/lab/scheduler").after("", ".open-games"),
    ]
}

/// Pages of a visitor: those of a race, in Chinese, and for a projector.
fn states_of_visitor(race: &str) -> Vec<PageState> {
    let run = format!("/lab/runs/{ID}");
    vec![
        state("race page", "", race),
        state("race in Chinese", "", "/").chinese(),
        state("race page in Chinese", "", race).chinese(),
        state("shop in Chinese", "", "/shop").chinese(),
        state("lab in Chinese", "", "/lab").chinese(),
        state("lesson in Chinese", "", "/lab/lessons/lost-update").chinese(),
        state("run in Chinese", "", run.clone()).chinese(),
        state("problems in Chinese", "", "/problems").chinese(),
        state("which lock", "", "/which-lock?processes=several"),
        state("which lock in Chinese", "", "/which-lock?processes=one").chinese(),
        state("lab presented", "", "/lab?present"),
        state("lesson presented", "", "/lab/lessons/lost-update?present"),
        state("run presented", "", format!("{run}?present")),
    ]
}

/// Every page in every state. Those of a visitor come first, then those of each user.
fn states(orders: &Orders) -> Vec<PageState> {
    let order = |id: &str| format!("/orders/{id}");
    vec![
        state("race", "", "/"),
        state("race after", "", "/")
            .after("document.querySelector('#race-go').click()", "#race-verdict.loss"),
        state("shop", "", "/shop"),
        state("bar", "", "/shop")
            .after("document.querySelector('.bar summary').click()", ".bar details[open]"),
        state("item", "", "/items/deadbolt"),
        state("item wrong", "", "/items/deadbolt").after(
            "const form = document.querySelector('form.buy');
             form.noValidate = true; form.quantity.value = 'many'; form.requestSubmit()",
            "#quantity-wrong",
        ),
        state("item sold out", "", "/items/last-lantern"),
        state("item ledger", "", "/items/deadbolt/ledger"),
        state("basket empty", "", "/basket"),
        state("basket full", "", "/items/deadbolt")
            .after("document.querySelector('#buy').click()", "#create-account"),
        state("sign in", "", "/sign-in"),
        state("session ended", "", "/sign-in?next=/orders&ended=yes"),
        state("sign in wrong", "", "/sign-in").after(
            "const form = document.querySelector('main form.stack');
             form.user.value = 'alice'; form.password.value = 'wrong'; form.requestSubmit()",
            "#password-wrong",
        ),
        state("sign up", "", "/sign-up"),
        state("sign up wrong", "", "/sign-up").after(
            "const form = document.querySelector('main form');
             form.user.value = 'No!'; form.password.value = 'wrong'; form.requestSubmit()",
            "#user-wrong",
        ),
        state("problems", "", "/problems"),
        state("not found", "", "/nothing-here"),
        state("api reference", "", "/api/docs")
            .after(ONE_OPERATION_OF_EACH_KIND, "article.operation"),
        state("glossary", "", "/glossary"),
        state("basket of user", "alice", "/basket"),
        state("order pending", "alice", order(&orders.pending)),
        state("order unaffordable", "alice", order(&orders.unaffordable)),
        state("order paid", "alice", order(&orders.paid)),
        state("order refunded", "alice", order(&orders.refunded)),
        state("order cancelled", "alice", order(&orders.cancelled)),
        state("order expired", "alice", order(&orders.expired)),
        state("orders", "alice", "/orders"),
        state("account", "alice", "/account"),
        state("account wrong", "alice", "/account").after(
            "const form = document.querySelector('main form');
             form.amount.value = '1,5'; form.requestSubmit()",
            "#amount-wrong",
        ),
        state("security", "alice", "/account/security"),
        state("security wrong", "alice", "/account/security").after(
            "const form = document.querySelector('main form');
             form.old.value = 'wrong'; form.new.value = 'long enough'; form.requestSubmit()",
            "#old-wrong",
        ),
        state("forbidden", "alice", "/audit"),
    ]
}

/// Pages of an admin.
fn states_of_admin() -> Vec<PageState> {
    vec![
        state("items of admin", "admin", "/admin"),
        state("add an item", "admin", "/admin")
            .after("document.querySelector('details.add summary').click()", "details.add[open]"),
        state("item of admin", "admin", "/admin/items/deadbolt"),
        state("item of admin wrong", "admin", "/admin/items/deadbolt").after(
            "const form = document.querySelector('#edit');
             form.noValidate = true; form.price.value = '1,5'; form.requestSubmit()",
            "#price-wrong",
        ),
        state("item of admin in Chinese", "admin", "/admin/items/deadbolt").chinese(),
        state("admin log", "admin", "/admin/log"),
        state("no orders", "admin", "/orders"),
        state("audit", "admin", "/audit"),
        state("locks", "admin", "/locks"),
        state("jobs", "admin", "/jobs"),
        state("lab", "admin", "/lab"),
        state("runs", "admin", "/lab/runs"),
        state("lesson", "admin", "/lab/lessons/lost-update"),
        state("lesson with a definition", "admin", "/lab/lessons/lost-update")
            .after("document.querySelector('.term').click()", ":popover-open"),
        state("run done", "admin", format!("/lab/runs/{ID}"))
            .after("document.querySelector('.details').open = true", ".details[open]"),
    ]
}

/// The admin's pages of orders and users.
fn states_of_admin_pages(orders: &Orders) -> Vec<PageState> {
    vec![
        state("orders of all", "admin", "/admin/orders"),
        state("no order found", "admin", "/admin/orders?user=nemo"),
        state("order of user", "admin", format!("/admin/orders/{}", orders.paid)),
        state("users", "admin", "/admin/users"),
        state("user", "admin", "/admin/users/alice"),
        state("user wrong", "admin", "/admin/users/alice").after(
            "const field = document.querySelector('#new');
             field.value = 'short'; field.form.requestSubmit()",
            "#new-wrong",
        ),
        state("user in Chinese", "admin", "/admin/users/alice").chinese(),
    ]
}

/// Returns the violations: of all rules in the light scheme, and of the contrast, which alone
/// depends on it, in the dark one. Contrast takes most of the time, and no color depends on the
/// language.
pub async fn violations(browser: &Browser, name: &str, language: &str) -> Vec<String> {
    let light = WIDTHS.map(|width| match COLOR_WIDTHS.contains(&width) {
        true => ("light", width, json!({})),
        false => ("light", width, json!({ "without": "color-contrast" })),
    });
    let dark = COLOR_WIDTHS.map(|width| ("dark", width, json!({ "only": "color-contrast" })));
    let dark = dark.into_iter().filter(|_| language == "en");

    let mut found = Vec::new();
    for (scheme, width, rules) in light.into_iter().chain(dark) {
        browser.prefer("prefers-color-scheme", scheme).await;
        browser.resize(width, 900).await;
        let rules = axe_core::violations(browser, rules).await;
        found.extend(rules.into_iter().map(|rule| format!("{name}, {scheme} {width}: {rule}")));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_violates_a_rule_of_axe() {
    let axe = axe();
    let shop = with_run(&oversold()).await;
    let orders = make_orders(&shop).await;
    let race = Visitor::new(&shop).post("/race", "buyers=2").await.location;
    let browser = Browser::open_for_minutes(&shop.replicas[0].base_url).await;
    let (begun, mut user, mut found) = (Instant::now(), "", Vec::new());
    browser.devtools("Network.enable", json!({})).await;
    let visitor = judged_states().into_iter().chain(states_of_visitor(&race));
    let users = states(&orders).into_iter().chain(states_of_admin_pages(&orders));
    let users = users.chain(states_of_admin());
    for state in visitor.chain(users).chain(states_of_participant()) {
        if state.user != user {
            user = state.user;
            browser.driver.delete_all_cookies().await.unwrap();
            browser.go("/sign-in").await;
            browser.sign_in(user).await;
            browser.until_path("/shop").await;
        }
        let headers = json!({ "headers": { "Accept-Language": state.language } });
        browser.devtools("Network.setExtraHTTPHeaders", headers).await;
        browser.go(&state.path).await;
        let language = browser.driver.execute("return document.documentElement.lang", vec![]).await;
        assert_eq!(language.unwrap().json(), state.language, "{}", state.name);
        if !state.script.is_empty() {
            browser.driver.execute(state.script, vec![]).await.unwrap();
        }
        until(state.name, async || {
            let ready = browser.driver.execute("return document.readyState", vec![]).await;
            let is_ready = ready.is_ok_and(|it| it.json() == "complete");
            is_ready && browser.driver.find(By::Css(state.until)).await.is_ok()
        })
        .await;
        browser.driver.execute(&*axe, vec![]).await.unwrap();
        found.extend(violations(&browser, state.name, state.language).await);
    }
    let folder = tempfile::tempdir().unwrap();
    let saved = async |path: String| Visitor::new(&shop).get(&path).await.text;
    let files = [
        ("saved run", saved(format!("/lab/runs/{ID}/file")).await, ".swimlane"),
        ("saved race", saved(format!("{race}/file")).await, ".race-film"),
        ("saved service", service_page(), ".requests"),
    ];
    for (name, text, until) in files {
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(&file, text).unwrap();
        browser.driver.goto(format!("file://{}", file.display())).await.unwrap();
        browser.find(until).await;
        browser.driver.execute(&*axe, vec![]).await.unwrap();
        found.extend(violations(&browser, name, "en").await);
    }
    browser.close().await;
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
    println!("{:?}", begun.elapsed());
}
