//! The pages in Chinese: the punctuation where templates join texts.

use std::collections::BTreeSet;

use holdfast_testkit::TestShop;
use regex::Regex;

use crate::lab::{ID, oversold, upload_to, with_run};
use crate::visitor::{Page, Visitor};

/// The tags between which a text continues.
const INLINE: &str = "(?:</?(?:a|b|bdi|code|span|strong|time)\\b[^>]*>)*";

/// Finds half-width punctuation after Chinese, and a space beside full-width punctuation.
fn wrong_punctuation() -> Regex {
    let [chinese, full] = ["[\u{4e00}-\u{9fff}]", "[，。：；、！？）]"];
    Regex::new(&format!(
        "{chinese}{INLINE}[(,;:?!]\
         |{full}{INLINE}\\s+{INLINE}(?:{chinese}|[（“])\
         |{chinese}{INLINE}\\s+{INLINE}(?:{full}|（)"
    ))
    .unwrap()
}

/// Returns the pages to which a page links, without those of the API and those for a projector.
fn links(page: &Page) -> impl Iterator<Item = String> {
    let targets = page.text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or_default());
    let is_page = |target: &&str| {
        let is_left_out = ["/api", "/static", "/language"].iter().any(|it| target.starts_with(it));
        target.starts_with('/') && !target.contains("present") && !is_left_out
    };
    targets.filter(is_page).map(|target| target.replace("&amp;", "&"))
}

/// Returns every page of a visitor who begins at some paths and follows each link.
async fn reachable(visitor: &Visitor, begin: &[&str]) -> Vec<(String, Page)> {
    let mut paths: Vec<String> = begin.iter().map(|path| (*path).to_owned()).collect();
    let mut known: BTreeSet<String> = paths.iter().cloned().collect();
    let mut pages = Vec::new();
    while let Some(path) = paths.pop() {
        let page = visitor.get(&path).await;
        if page.status.is_redirection() {
            paths.extend(known.insert(page.location.clone()).then_some(page.location));
            continue;
        }
        if !page.kind.starts_with("text/html") {
            continue;
        }
        paths.extend(links(&page).filter(|path| known.insert(path.clone())));
        pages.push((path, page));
    }
    pages
}

async fn chinese_visitor(visitor: Visitor) -> Visitor {
    assert_eq!(visitor.get("/language/zh").await.status, 303);
    visitor
}

/// Returns the pages of a visitor, of a buyer with a limit, and of an administrator.
async fn chinese_pages(shop: &TestShop) -> Vec<(String, Page)> {
    let visitor = chinese_visitor(Visitor::new(shop)).await;
    let race = visitor.post("/race", "buyers=2").await.location;
    let judgement = include_bytes!("judgement.json");
    let judgement = upload_to("/lab/judged", &visitor, "", judgement).await;
    let run = format!("/lab/runs/{ID}");
    let mut pages =
        reachable(&visitor, &["/", &race, &run, "/sign-up", "/api/docs", "/nothing-here"]).await;
    pages.push(("the opened judgement".to_owned(), judgement));

    shop.execute("update items set limit_per_user = 3 where sku = 'deadbolt'").await;
    let alice = chinese_visitor(Visitor::signed_in(shop, "alice").await).await;
    let (order, _) = alice.buy("deadbolt", 1).await;
    alice.fill_basket("deadbolt", 2).await;
    shop.execute("update items set limit_per_user = 2 where sku = 'deadbolt'").await;
    for path in ["/basket", "/orders", &order, "/account", "/account/security"] {
        pages.push((path.to_owned(), alice.get(path).await));
    }

    let admin = chinese_visitor(Visitor::signed_in(shop, "admin").await).await;
    for path in ["/audit", "/locks", "/jobs", "/items/deadbolt/ledger", "/lab/scheduler"] {
        pages.push((path.to_owned(), admin.get(path).await));
    }
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn chinese_pages_have_chinese_punctuation() {
    let shop = with_run(&oversold()).await;
    let (pages, wrong) = (chinese_pages(&shop).await, wrong_punctuation());
    assert!(pages.len() > 80, "{}", pages.len());
    let links = Regex::new(r"</a>\s+<a ").unwrap();
    let terminal = Regex::new(r"(?s)<pre>.*?</pre>").unwrap();
    let mut found = BTreeSet::new();
    for (path, page) in pages {
        assert!(page.status == 200 || path == "/nothing-here", "{path}: {}", page.status);
        assert!(page.text.contains("<html lang=\"zh\""), "{path}: {}", page.text);
        // A title may end with punctuation, and another link begin beside it.
        let text = terminal.replace_all(&page.text, "<hr>");
        let text = links.replace_all(&text, "</a><hr><a ");
        found.extend(wrong.find_iter(&text).map(|it| format!("{path}: {}", it.as_str())));
    }
    assert!(found.is_empty(), "{found:#?}");
}
