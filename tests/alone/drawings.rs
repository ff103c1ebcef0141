//! The drawings of all lessons' runs, measured in a real browser.

use std::collections::BTreeSet;

use holdfast_base::messages::Language;
use holdfast_lab::lessons::LESSONS;
use serde_json::json;

use crate::browser::Browser;

/// Returns how many texts of drawings are seen, and which collide.
const COLLISIONS: &str = include_str!("../pages/collisions.js");

/// Asserts that the scene that the question asks about plays first, and that no text of it covers
/// another one, in both languages, on a phone and on a large screen. `runs` has those of
/// [`LESSONS`].
pub async fn assert_legible(base_url: &str, runs: &[String]) {
    let browser = Browser::open(base_url, true).await;
    browser.prefer("prefers-reduced-motion", "reduce").await;

    let mut labelled = BTreeSet::new();
    for tag in Language::ALL.map(Language::tag) {
        for (lesson, id) in LESSONS.iter().zip(runs) {
            browser.go(&format!("/language/{tag}?next=/lab/runs/{id}")).await;
            let asked = "return document.querySelector('.player')?.dataset.scene ?? ''";
            let shown = browser.driver.execute(asked, vec![]).await.unwrap();
            assert_eq!(shown.json(), lesson.scene, "{} in {tag} plays another scene", lesson.name);

            for width in [390, 1280] {
                browser.resize(width, 900).await;
                let found = browser.driver.execute(COLLISIONS, vec![]).await.unwrap();
                let found = found.json();
                assert_eq!(found[1], json!([]), "{} in {tag} at {width}", lesson.name);
                if found[0] != 0 {
                    labelled.insert(lesson.name);
                }
            }
        }
    }
    // A drawing of more than six lanes has no labels, and three lessons have no drawing.
    assert!(labelled.len() >= 15, "{labelled:?}");
    browser.close().await;
}
