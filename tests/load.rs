//! The load scripts tell the truth: off oversells, on does not, and a lock that does not hold is
//! not praised. Needs the tools of `load/setup`, which `script/test` fetches first.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod common;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use common::Shop;

struct Told {
    code: Option<i32>,
    story: Value,
}

async fn tell(script: &str, arguments: &'static [&'static str]) -> Told {
    let shop = Shop::start(2).await;
    let urls = [shop.replicas[0].base_url.as_str(), shop.replicas[1].base_url.as_str()].join(",");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("load").join(script);
    let mut command = Command::new(script);
    command.args(arguments).arg("--json").env("BASE_URLS", urls);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let story = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("nothing was told; {said} (are the tools there? load/setup)"));
    shop.assert_sound().await;
    Told { code: output.status.code(), story }
}

fn assert_both_halves(told: &Told) {
    let Told { code, story } = told;
    assert_eq!(*code, Some(0), "{story:#}");
    assert_eq!(story["claim_shown"], true);
    let (off, on) = (&story["off"], &story["on"]);
    assert_eq!((&off["strategy"], &on["strategy"]), (&"none".into(), &"batched".into()));
    assert!(
        off["sold"].as_i64().unwrap() > 100 && off["oversold"].as_i64().unwrap() > 0,
        "{off:#}"
    );
    assert!(off["forks"].as_i64().unwrap() > 0 && off["stock"].as_i64().unwrap() >= 0, "{off:#}");
    assert_eq!((&on["sold"], &on["oversold"], &on["forks"]), (&100.into(), &0.into(), &0.into()));
    assert_eq!(on["ok"], true);
}

#[tokio::test]
async fn the_story_with_oha_shows_both_halves() {
    assert_both_halves(&tell("oversell-oha", &[]).await);
}

#[tokio::test]
async fn the_story_with_k6_shows_both_halves_and_counts_refusals_as_refusals() {
    let told = tell("oversell-k6", &[]).await;
    assert_both_halves(&told);
    let refused = told.story["on"]["refused"].as_object().unwrap();
    assert_eq!(refused.values().map(|n| n.as_i64().unwrap()).sum::<i64>(), 300, "{refused:?}");
}

#[tokio::test]
async fn a_lock_that_does_not_hold_is_not_praised() {
    let told = tell("oversell-oha", &["--lock", "local"]).await;
    assert_eq!(told.code, Some(1), "{:#}", told.story);
    assert_eq!(told.story["claim_shown"], false);
}
