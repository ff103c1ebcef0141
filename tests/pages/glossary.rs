//! Words of the field: their list, and their definitions where a page uses them.

use holdfast_base::messages::Language;
use holdfast_lab::store;
use holdfast_testkit::{TestShop, until};
use thirtyfour::prelude::*;
use uuid::Uuid;

use crate::browser::Browser;
use crate::lab::{oversold, with_run};
use crate::visitor::Visitor;

#[tokio::test(flavor = "multi_thread")]
async fn glossary_is_listed_in_both_languages() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let english = visitor.get("/glossary").await;
    assert!(english.text.contains("<dt id=\"lease\">lease</dt>"), "{}", english.text);
    assert!(english.words().contains("fencing token a number that grows with every grant"));
    let chinese = visitor.get_in("zh", "/glossary").await;
    assert!(chinese.words().contains("租约 会自动过期的锁"), "{}", chinese.text);
    for page in [&english, &chinese] {
        let [words, lessons] = ["<dt ", "<a href=\"/lab/lessons/"].map(|it| page.text.matches(it));
        assert_eq!(lessons.count(), words.count(), "each word has its lesson: {}", page.text);
    }
    for path in ["/", "/shop", "/glossary"] {
        assert!(visitor.get(path).await.text.contains("<a href=\"/glossary\""), "{path}");
    }
}

/// By pointing, by keyboard, by a click, and by a click without a script.
#[tokio::test(flavor = "multi_thread")]
async fn word_shows_its_definition() {
    let shop = with_run(&oversold()).await;
    for javascript in [true, false] {
        let browser = Browser::open(&shop.replicas[0].base_url, javascript).await;
        browser.go("/lab/lessons/lost-update").await;
        let term = browser.find(".primer .term[popovertarget='term-replica']").await;
        let definition = browser.find("#term-replica").await;
        let becomes = async |shown: bool, how: &str| {
            until(how, async || definition.is_displayed().await.is_ok_and(|it| it == shown)).await;
        };
        becomes(false, "it is hidden at first").await;

        if javascript {
            let actions = || browser.driver.action_chain();
            actions().move_to_element_center(&term).perform().await.unwrap();
            becomes(true, "it is shown while one points at the word").await;
            actions().move_to_element_center(&browser.find("h1").await).perform().await.unwrap();
            becomes(false, "the pointer has left").await;

            browser.find(".primer summary").await.focus().await.unwrap();
            actions().send_keys(Key::Tab).perform().await.unwrap();
            becomes(true, "the word has the focus").await;
            actions().send_keys(Key::Escape).perform().await.unwrap();
            becomes(false, "Escape was pressed").await;
        }

        term.click().await.unwrap();
        becomes(true, "the word was clicked").await;
        let text = definition.text().await.unwrap();
        assert!(text.starts_with("replica: one of several copies"), "{text}");
        let below = definition.rect().await.unwrap().y - term.rect().await.unwrap().y;
        assert!((10.0..80.0).contains(&below), "it is {below} px below the word");
        browser.click("h1").await;
        becomes(false, "another place was clicked").await;
        if javascript {
            assert_eq!(browser.console_errors().await, Vec::<serde_json::Value>::new());
        }
        browser.close().await;
    }
}

/// Beside a word with a definition, a browser breaks a line also before a comma.
#[tokio::test(flavor = "multi_thread")]
async fn no_line_begins_with_punctuation() {
    let shop = TestShop::start(1).await;
    let lessons = ["outlived", "check-then-delete", "double-submit", "machine-gun"];
    let mut pages = lessons.map(|lesson| format!("/lab/lessons/{lesson}")).to_vec();
    for lesson in ["two-items", "double-submit"] {
        let mut run = oversold();
        run.id = Uuid::now_v7();
        run.request.lesson = Some(lesson.to_owned());
        assert!(store::import(&shop.pool.clone().into(), &run).await.unwrap());
        pages.push(format!("/lab/runs/{}", run.id));
    }

    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    let mut broken = Vec::new();
    for language in Language::ALL {
        browser.go(&format!("/language/{}?next=/lab", language.tag())).await;
        for (page, width) in pages.iter().flat_map(|page| [(page, 390), (page, 1280)]) {
            browser.resize(width, 900).await;
            browser.go(page).await;
            let script = include_str!("line_starts.js");
            let found = browser.driver.execute(script, vec![]).await.unwrap();
            let found: Vec<String> = found.convert().unwrap();
            broken.extend(found.into_iter().map(|text| (page, width, language.tag(), text)));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    browser.close().await;
}
