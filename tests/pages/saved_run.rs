//! A run saved as one HTML file: opened again by a lab, and played in a browser from a disk.

use holdfast_lab::run::{LabRun, LabRunState};
use holdfast_testkit::TestShop;
use reqwest::header::CONTENT_DISPOSITION;
use serde_json::Value;
use thirtyfour::prelude::*;

use crate::browser::Browser;
use crate::lab::{ID, oversold, upload, with_run};
use crate::visitor::{Page, Visitor};

#[tokio::test(flavor = "multi_thread")]
async fn exported_run_opens_in_another_shop() {
    let run = oversold();
    let (source_shop, target_shop) = (with_run(&run).await, TestShop::start(1).await);
    let path = format!("/lab/runs/{ID}");
    let exporter = Visitor::signed_in(&source_shop, "admin").await;
    let response = exporter.page_request(&format!("{path}/file")).send().await.unwrap();
    let name = format!("attachment; filename=\"holdfast-run-{ID}.html\"");
    assert_eq!(response.headers()[CONTENT_DISPOSITION], name.as_str());
    let file = response.bytes().await.unwrap();

    let importer = Visitor::signed_in(&target_shop, "admin").await;
    let csrf = importer.get("/lab").await.csrf();
    let main = |page: &Page| page.text.split("<main").nth(1).unwrap().to_owned();
    let imported = upload(&importer, &csrf, &file).await;
    assert_eq!(
        (imported.status.as_u16(), &imported.location),
        (303, &path),
        "{}",
        imported.words()
    );
    assert_eq!(main(&importer.get(&path).await), main(&exporter.get(&path).await));
    let again = upload(&importer, &csrf, &file).await;
    assert_eq!(again.location, path, "it is stored already");

    for forged in ["", "forged"] {
        assert_eq!(upload(&importer, forged, &file).await.status, 403);
    }
    let mut running = run.clone();
    running.state = LabRunState::Running;
    let mut long = run.clone();
    long.outcome.lanes = vec![run.outcome.lanes[0].clone(); 601];
    let mut zero = run.clone();
    zero.outcome.verdict = Some("a\0b".into());
    let text = |run: &LabRun| serde_json::to_vec(run).unwrap();
    for (kind, file) in [
        ("empty", b"".to_vec()),
        ("no JSON", b"{\"id\": 1".to_vec()),
        ("missing fields", b"{}".to_vec()),
        ("not over", text(&running)),
        ("too many lanes", text(&long)),
        ("a zero byte", text(&zero)),
        ("a page", b"<script type=\"application/json\" id=\"holdfast-run\">{}</script>".to_vec()),
    ] {
        let rejected = upload(&importer, &csrf, &file).await;
        assert_eq!(rejected.status, 422, "{kind}: {}", rejected.words());
        let error = rejected.text.split("id=\"file-wrong\"").nth(1).unwrap();
        let error = error.split("</p>").next().unwrap();
        let why = "This is not a file that a run was saved to.";
        assert!(error.contains(why) && !error.contains("line 1"), "{kind}: {error}");
    }
    let large = upload(&importer, &csrf, &vec![b' '; 5 * 1024 * 1024]).await;
    assert_eq!(large.status, 413);
    assert!(large.words().contains("at most 4 MiB"), "{}", large.words());
    assert_eq!(target_shop.number("select count(*) from lab_runs").await, 1);

    // As an earlier version has saved them.
    for file in ["run-outlived.json", "run-fence.json"] {
        let file = std::fs::read(format!("tests/saved/{file}")).unwrap();
        let opened = upload(&importer, &csrf, &file).await;
        assert_eq!(opened.status, 303, "{}", opened.words());
        assert_eq!(importer.get(&opened.location).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_and_runs_have_a_page() {
    let shop = with_run(&oversold()).await;
    let visitor = Visitor::new(&shop);
    let (map, runs) = (visitor.get("/lab").await.text, visitor.get("/lab/runs").await.text);
    let run = format!("href=\"/lab/runs/{ID}\"");
    for part in ["action=\"/lab/runs\"", "action=\"/lab/files\"", &run] {
        assert!(runs.contains(part) && !map.contains(part), "{part}");
    }
    for link in ["/lab/runs", "/lab/runs#open", "/lab/runs#runs-title"] {
        assert!(map.contains(&format!("href=\"{link}\"")), "{link}");
        let place = link.split_once('#').map(|(_, place)| format!("id=\"{place}\""));
        assert!(place.is_none_or(|place| runs.contains(&place)), "{link}");
    }
    // Where a browser goes when it loads a page with an error again.
    assert_eq!(visitor.get("/lab/files").await.location, "/lab/runs");
}

/// Neither the file nor its browser can reach a server: the shop has ended by then.
#[tokio::test(flavor = "multi_thread")]
async fn saved_run_plays_from_disk() {
    let mut run = oversold();
    let attack = "</script><script>document.title = 'attacked'</script>";
    run.outcome.verdict = Some(attack.into());
    run.outcome.lanes[0].label = "<img src=x onerror=alert(1)>".into();
    let shop = with_run(&run).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let page = admin.get(&format!("/lab/runs/{ID}/file")).await;
    assert!(page.kind.starts_with("text/html"), "{}", page.kind);
    drop(shop);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.html");
    std::fs::write(&path, &page.text).unwrap();

    let browser = Browser::open("", true).await;
    browser.driver.goto(format!("file://{}", path.display())).await.unwrap();
    assert!(browser.driver.title().await.unwrap().ends_with("Holdfast"));
    let verdict = browser.find(".sentence").await.text().await.unwrap();
    assert_eq!(verdict, attack);
    let swimlane = browser.find(".swimlane").await;
    swimlane.send_keys(Key::Home).await.unwrap();
    browser.until_text(".step-description", "Step 1 of 16").await;
    swimlane.send_keys(Key::Right).await.unwrap();
    swimlane.send_keys(Key::Right).await.unwrap();
    browser.until_text(".step-description", "reads 57").await;
    browser.until_text(".step-command", "select stock, version from items").await;
    browser.click(".swimlane .play").await;
    browser.until_text(".step-description", "Step 16 of 16").await;
    browser.until_text(".arms", "oversold 43 0").await;
    browser.click("details.fork summary").await;
    browser.until_text("details.fork .step-description", "Step 14 of 16").await;
    browser.resize(320, 640).await;
    let width = browser.width().await;
    assert!(width <= 320, "it is {width} wide");
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}
