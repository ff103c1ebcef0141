//! Judged locks: the list, a judgement that a visitor opens, and one that is saved as a page.

use holdfast_judge::report::Judgement;
use holdfast_judge::service::report::ServiceJudgement;
use holdfast_testkit::{CONDITION_TIMEOUT, TestShop, until};
use serde_json::{Value, json};
use thirtyfour::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::browser::Browser;
use crate::lab::upload_to;
use crate::visitor::{Page, Visitor};

const PATH: &str = "/lab/judged";
const FIXTURE: &str = include_str!("judgement.json");

/// Returns the page that is saved of the judgement of a service.
pub fn service_page() -> String {
    let judgement: ServiceJudgement = serde_json::from_str(include_str!("service.json")).unwrap();
    holdfast::app::service_page(&judgement).unwrap()
}

fn judgement() -> Judgement {
    serde_json::from_str(FIXTURE).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_read_judged_locks() {
    let mut shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let list = visitor.page_request(PATH).header("X-Forwarded-For", "192.0.2.1");
    let list = Page::read(list.send().await.unwrap()).await;
    assert_eq!(list.status, 200);
    assert!(list.words().contains("holdfast judge --json FILE -- COMMAND"), "{}", list.words());
    let mut names: Vec<String> = std::fs::read_dir("docs/judged")
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
        .collect();
    names.sort();
    let is_empty = list.words().contains("No judgement comes with this version.");
    assert_eq!(is_empty, names.is_empty(), "{}", list.words());
    for name in &names {
        let path = format!("{PATH}/{name}");
        assert!(list.text.contains(&format!("href=\"{path}\"")), "{path} is not on the list");
        let page = visitor.get(&path).await;
        assert!(page.status == 200 && page.text.contains("saved-verdict"), "{path}");
    }
    assert_eq!(visitor.get(&format!("{PATH}/none-such")).await.status, 404);

    let link = format!("href=\"{PATH}\"");
    for (path, is_linked) in [
        ("/lab", true),
        ("/lab/lessons/fence", true),
        ("/lab/lessons/failover", true),
        ("/lab/lessons/redlock", true),
        ("/lab/lessons/lost-update", false),
    ] {
        let page = visitor.get(path).await;
        assert_eq!(page.text.matches(&link).count(), usize::from(is_linked), "{path}");
    }

    let chinese = visitor.page_request(PATH).header("Accept-Language", "zh");
    let words = Page::read(chinese.send().await.unwrap()).await.words();
    for text in ["锁与商店的评测", "适配器", "主从切换", "会话：锁随连接结束"]
    {
        assert!(words.contains(text), "{text}: {words}");
    }

    let chinese = visitor.page_request("/lab/judged/redis-py").header("Accept-Language", "zh");
    let words = Page::read(chinese.send().await.unwrap()).await.words();
    assert!(words.contains("两者同时持锁") && !words.contains("held the lock"), "{words}");

    visitors_find_judged_services(&visitor).await;
    charts_open_at_their_loss(&shop).await;

    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    let off = Visitor { base: shop.replicas[1].base_url.clone(), ..visitor };
    for path in [PATH.to_owned(), format!("{PATH}/none-such")] {
        assert_eq!(off.get(&path).await.status, 403, "{path}");
    }
    assert_eq!(upload_to(PATH, &off, "", FIXTURE.as_bytes()).await.status, 403);
}

async fn visitors_find_judged_services(visitor: &Visitor) {
    let list = visitor.get(PATH).await;
    let groups = ["lease", "session", "consensus", "file", "shop"];
    let heads = groups.map(|group| list.text.find(&format!("<tr id=\"group-{group}\">")));
    assert!(heads.iter().all(Option::is_some) && heads.is_sorted(), "{heads:?}");
    for shown in [
        "kazoo 2.11.0 Lock writes that come too late",
        "▲ Not sound: oversold, drift, doubled",
        "✓ Sound: nothing oversold, lost or doubled, and no drift",
    ] {
        assert!(list.words().contains(shown), "{shown}: {}", list.words());
    }

    for folder in std::fs::read_dir("judge/services").unwrap() {
        let folder = folder.unwrap();
        if folder.path().join("README.md").exists() {
            let name = folder.file_name().into_string().unwrap();
            for shown in [format!("<h3 id=\"{name}\">"), format!("href=\"#{name}\"")] {
                assert!(list.text.contains(&shown), "{shown} is not on the page");
            }
        }
    }

    let link = format!("href=\"{PATH}#services\"");
    for (path, is_linked) in [
        ("/lab", true),
        ("/lab/scheduler", true),
        ("/lab/lessons/lost-update", true),
        ("/lab/lessons/fence", true),
        ("/lab/lessons/wrong-key", false),
    ] {
        let page = visitor.get(path).await;
        assert_eq!(page.text.matches(&link).count(), usize::from(is_linked), "{path}");
    }
}

async fn charts_open_at_their_loss(shop: &TestShop) {
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go(&format!("{PATH}/redis-py")).await;
    browser.until_charts_show_their_loss().await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opened_judgement_is_shown_and_escaped() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let page = upload_to(PATH, &visitor, "", FIXTURE.as_bytes()).await;
    assert_eq!(page.status, 200, "{}", page.words());
    assert!(page.words().contains("Loses updates under 3 of 9 faults"), "{}", page.words());
    for fault in judgement().faults {
        assert!(page.words().contains(&fault.name), "{}", fault.name);
        for violation in fault.violations {
            assert!(page.words().contains(&violation.text), "{}", violation.text);
        }
    }
    // As an earlier version has saved them.
    for file in ["judgement-flock.json", "judgement-simple-redis-mutex.json"] {
        let file = std::fs::read(format!("tests/saved/{file}")).unwrap();
        let page = upload_to(PATH, &visitor, "", &file).await;
        assert!(page.status == 200 && page.text.contains("<svg"), "{}", page.words());
    }

    let mut attack = judgement();
    attack.adapter.name = "<script>alert(1)</script>".to_owned();
    attack.faults[1].violations[0].text = "<img src=x onerror=alert(1)>".to_owned();
    let page = upload_to(PATH, &visitor, "", &serde_json::to_vec(&attack).unwrap()).await;
    assert_eq!(page.status, 200, "{}", page.words());
    assert!(!page.text.contains("<script>") && !page.text.contains("<img"), "{}", page.text);

    let alice = Visitor::signed_in(&shop, "alice").await;
    assert_eq!(upload_to(PATH, &alice, "forged", FIXTURE.as_bytes()).await.status, 403);
    let csrf = alice.get(PATH).await.csrf();
    assert_eq!(upload_to(PATH, &alice, &csrf, FIXTURE.as_bytes()).await.status, 200);
    let foreign = visitor.form_request(PATH, "").header("Sec-Fetch-Site", "cross-site");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    assert!(!visitor.get(PATH).await.text.contains("example-lock"), "nothing is stored");
}

/// The JSON and the page that the judge has written, of a shop and of a lock.
#[tokio::test(flavor = "multi_thread")]
async fn saved_judgements_open_again() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let of_service = service_page();
    let of_lock = holdfast::app::judgement_page(&judgement()).unwrap();
    for (file, verdict) in [
        (include_str!("service.json"), "Not sound: oversold, doubled"),
        (of_service.as_str(), "Not sound: oversold, doubled"),
        (of_lock.as_str(), "Loses updates under 3 of 9 faults"),
    ] {
        let page = upload_to(PATH, &visitor, "", file.as_bytes()).await;
        assert_eq!(page.status, 200, "{}", page.words());
        for text in ["Opened from a file. It is not stored", verdict] {
            assert!(page.words().contains(text), "{text}: {}", page.words());
        }
    }

    let opened = upload_to(PATH, &visitor, "", include_bytes!("service.json")).await;
    for text in ["buyer 2, instance 1", "id = &#39;&#60;b&#62;tea&#39;", "/static/service.css"] {
        assert!(opened.text.contains(text), "{text}: {}", opened.text);
    }
    let mut long: Value = serde_json::from_str(include_str!("service.json")).unwrap();
    let passes = vec![long["passes"][0].clone(); 41];
    long["passes"] = passes.into();
    let refused = upload_to(PATH, &visitor, "", long.to_string().as_bytes()).await;
    assert_eq!(refused.status, 422, "{}", refused.words());
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_file_is_rejected_with_reason() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let mut judgement = judgement();
    judgement.adapter.name = "x".repeat(2_001);
    for file in [
        Vec::new(),
        b"{\"adapter\": 1".to_vec(),
        b"\xff\xfe".to_vec(),
        serde_json::to_vec(&judgement).unwrap(),
    ] {
        let page = upload_to(PATH, &visitor, "", &file).await;
        assert_eq!(page.status, 422, "{}", page.words());
        let error = page.text.split("id=\"file-wrong\"").nth(1).unwrap();
        let error = Page { text: format!("<p {}", error.split("</p>").next().unwrap()), ..page };
        let why = "This is not a file that holdfast judge or holdfast judge service";
        assert!(error.words().contains(why), "{}", error.words());
    }
    let form = visitor.form_request(PATH, "file=%7B%7D").send().await.unwrap();
    assert_eq!(form.status(), 400, "it is no form with a file");
    let large = upload_to(PATH, &visitor, "", &vec![b' '; 5 * 1024 * 1024]).await;
    assert_eq!(large.status, 413);
    assert!(large.words().contains("at most 4 MiB"), "{}", large.words());
}

/// Begins a form with a file, whose rest does not arrive. The handler has it when this returns.
async fn begin_upload(shop: &TestShop, header: &str) -> TcpStream {
    let address = shop.url(0, "").replace("http://", "");
    let mut connection = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: {address}\r\n{header}Content-Length: 3000000\r\n\
         Expect: 100-continue\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    connection.read_exact(&mut go_on).await.unwrap();
    let part = "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{";
    connection.write_all(part.as_bytes()).await.unwrap();
    connection
}

async fn status_of(connection: &mut TcpStream) -> String {
    let mut status = [0; 12];
    let read = connection.read_exact(&mut status);
    tokio::time::timeout(CONDITION_TIMEOUT, read).await.unwrap().unwrap();
    String::from_utf8_lossy(&status).into_owned()
}

/// The response is sent before the file has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn file_from_another_site_is_not_read() {
    let shop = TestShop::start(1).await;
    let mut slow = begin_upload(&shop, "").await;
    let mut foreign = begin_upload(&shop, "Sec-Fetch-Site: cross-site\r\n").await;
    tokio::select! {
        biased;
        status = status_of(&mut foreign) => assert_eq!(status, "HTTP/1.1 403"),
        status = status_of(&mut slow) => panic!("{status} arrived first"),
    }
}

/// Another upload waits without being read, which bounds the memory, and is rejected after a while.
#[tokio::test(flavor = "multi_thread")]
async fn few_files_are_read_at_a_time() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(begin_upload(&shop, "").await);
    }
    let upload = async || upload_to(PATH, &visitor, "", FIXTURE.as_bytes()).await.status;
    assert_eq!(upload().await, 503, "the maximum of uploads is being read");

    drop(slow);
    until("an upload has ended", async || upload().await == 200).await;
}

fn assert_refers_to_nothing(page: &str) {
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "url(", "<script>", "src=", "<link"] {
        assert!(!page.contains(outside), "the page refers to {outside}");
    }
    let data = page.matches("<script type=\"application/json\"").count();
    assert_eq!((data, page.matches("<script").count()), (1, 1), "it has no script but its data");
}

/// The requests of a finding stand side by side, on a phone below each other, and on paper whole.
#[tokio::test(flavor = "multi_thread")]
async fn saved_service_opens_from_disk() {
    let page = service_page();
    assert_refers_to_nothing(&page);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.html");
    std::fs::write(&path, &page).unwrap();

    let browser = Browser::open("", false).await;
    browser.driver.goto(format!("file://{}", path.display())).await.unwrap();
    browser.find(".passes a[href='#pass-3']").await.send_keys(Key::Enter).await.unwrap();
    let url = browser.driver.current_url().await.unwrap();
    assert_eq!(url.fragment(), Some("pass-3"));
    let statements = browser.driver.find_all(By::Css(".requests .sql")).await.unwrap();
    let (first, third) = (&statements[0], &statements[2]);
    assert_eq!(first.text().await.unwrap(), "select stock from products where id = '<b>tea'");
    let left = async |it: &WebElement| it.rect().await.unwrap().x;
    assert!(left(third).await + 100.0 < left(first).await, "buyer 1 is in the first column");

    browser.resize(320, 640).await;
    assert!(browser.width().await <= 320, "the page scrolls sideways");
    let indented = left(first).await - left(third).await;
    assert!(
        (20.0..60.0).contains(&indented),
        "one column, in which buyer 2 is indented: {indented}"
    );
    browser.until_text(".requests li", "buyer 2, instance 1").await;

    browser.resize(700, 900).await;
    browser.devtools("Emulation.setEmulatedMedia", json!({ "media": "print" })).await;
    assert!(browser.width().await <= 700, "the table is cut off on paper");
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}

/// The page needs neither a server nor scripts.
#[tokio::test(flavor = "multi_thread")]
async fn saved_judgement_opens_from_disk() {
    let judgement = judgement();
    let page = holdfast::app::judgement_page(&judgement).unwrap();
    assert_refers_to_nothing(&page);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("judgement.html");
    std::fs::write(&path, &page).unwrap();

    let browser = Browser::open("", false).await;
    browser.driver.goto(format!("file://{}", path.display())).await.unwrap();
    let title = browser.find("h1").await.text().await.unwrap();
    assert_eq!(title, judgement.adapter.name);
    let background = browser.find("body").await.css_value("font-size").await.unwrap();
    assert_ne!(background, "", "the style applies");
    let drawings = browser.driver.find_all(By::Css(".timeline svg")).await.unwrap();
    let violations = judgement.faults.iter().flat_map(|fault| &fault.violations);
    let with_events = violations.filter(|violation| !violation.events.is_empty()).count();
    assert_eq!(drawings.len(), with_events);
    let label = browser.find(".timeline .loss .label").await;
    let text = label.text().await.unwrap();
    assert!(text.contains("440"), "{text}");
    assert_eq!(label.css_value("font-size").await.unwrap(), "14px");
    let red = browser.find(".saved-verdict.loss").await.css_value("color").await.unwrap();
    assert_eq!(
        label.css_value("fill").await.unwrap(),
        red.replace("rgba", "rgb").replace(", 1)", ")")
    );

    // By keyboard: a fault's violations from the table, the list of events, a wide drawing.
    browser.find("table.judged a").await.send_keys(Key::Enter).await.unwrap();
    let url = browser.driver.current_url().await.unwrap();
    assert_eq!(url.fragment(), Some("fault-2"));
    let summary = browser.find("details.steps summary").await;
    summary.send_keys(Key::Enter).await.unwrap();
    browser.until_text("details.steps[open] ol", "w0 c3 reads 441").await;
    browser.resize(320, 640).await;
    assert!(browser.width().await <= 320, "the page scrolls sideways");
    let timeline = browser.find(".timeline").await;
    timeline.send_keys(Key::Right).await.unwrap();
    let scrolled = async || timeline.prop("scrollLeft").await.unwrap().unwrap() != "0";
    until("the arrow key scrolls the drawing", scrolled).await;
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}
