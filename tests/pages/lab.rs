//! The lab's pages: the map, a lesson, a run, errors beside fields.

use holdfast_lab::run::{LabRun, LabRunState, RunProgress};
use holdfast_lab::store;
use holdfast_testkit::TestShop;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::visitor::{Page, Visitor};

pub const ID: &str = "01a2006d-5253-7170-b37f-df609d0c5d2e";
/// The boundary of the multipart form.
pub const EDGE: &str = "holdfast-test-edge";

fn request(number: u8) -> String {
    format!("01a2006d-53a3-75d1-8e6f-0000000000{number:02}")
}

/// A request that read 57 and wrote 56.
fn lane(number: u8, replica: &str, redirect: u64) -> Value {
    let at = |t: u64, event: &str, value: Option<i64>| json!({ "t_us": redirect + t, "event": event, "key": "{sku:lab-1}", "value": value });
    json!({
        "request_id": request(number), "label": format!("order {number}"), "replica": replica,
        "arm": 0, "sent_us": redirect, "answered_us": redirect + 9_000, "status": 201,
        "events": [
            at(100, "wait", None), at(1_000, "read", Some(57)), at(6_000, "write", Some(56)),
            at(7_000, "commit", None), at(8_000, "committed", None), at(8_100, "release", None),
        ],
    })
}

/// Returns a completed run of the first lesson: two requests read the same 57, a third reads it
/// much later.
pub fn oversold() -> LabRun {
    let entry = |number: u8| {
        let order = format!("01a2006d-53a7-7142-94cb-c9557a8a5{number:03}");
        json!({ "seq": 40 + number, "delta": -1, "after": 56, "order_id": order,
                "request_id": request(number), "fence": null })
    };
    let sample = |t: u64, sold: i64, stock: i64| {
        json!({ "t_ms": t, "sold": sold, "stock": stock, "oversold": (sold - 57).max(0),
                "answered": sold, "waiting": 3, "p50_ms": 4.2, "p99_ms": 17.9 })
    };
    let verdict = json!({
        "id": "run-lost-update-verdict",
        "arguments": {
            "what": { "id": "run-lost-update-oversold", "arguments": { "oversold": "43" } },
            "sold": "100", "opening": "57", "forks": "31",
        },
    });
    let outcome = json!({
        "claim_shown": true, "verdict": verdict,
        "evidence": [{ "name": "longest stall", "value": "12 ms", "ok": true }],
        "said": ["A has read 57.", "B <b>reads</b> it too."],
        "lanes": [lane(1, "8080", 1_000), lane(2, "8081", 2_900), lane(3, "8080", 600_000)],
        "arms": [
            { "strategy": "none", "sku": "lab-1", "stock_opening": 57, "sold": 100, "stock": 5,
              "oversold": 43, "undersold": 0, "drift": 48, "breaks": 9, "forks": 31,
              "orders_per_s": 312.5, "wait_p50_ms": 4.2, "wait_p99_ms": 17.9, "ok": false,
              "statuses": { "201": 100 },
              "samples": [sample(0, 0, 57), sample(100, 60, 30), sample(200, 100, 5)],
              "forked": [{ "version": 3, "before": 57, "entries": [entry(1), entry(2), entry(3)] }],
              "waits": [{ "up_to_ms": 5.0, "count": 80 }, { "up_to_ms": 20.0, "count": 20 }] },
            { "strategy": "batched", "sku": "lab-2", "stock_opening": 57, "sold": 57, "stock": 0,
              "ok": true, "statuses": { "201": 57, "409": 43 } },
        ],
    });
    let request_json = json!({ "lesson": "lost-update", "buyers": 8 });
    LabRun {
        from_file: false,
        replica: None,
        position: None,
        id: ID.parse().unwrap(),
        state: LabRunState::Done,
        request: serde_json::from_value(request_json).unwrap(),
        progress: RunProgress::default(),
        created_at: time::macros::datetime!(2026-11-21 10:00 UTC),
        outcome: serde_json::from_value(outcome).unwrap(),
    }
}

pub async fn with_run(run: &LabRun) -> TestShop {
    let shop = TestShop::start(1).await;
    assert!(store::import(&shop.pool.clone().into(), run).await.unwrap());
    shop
}

/// Registers a runner, as `holdfast up` does.
pub async fn register_runner(shop: &TestShop) {
    let insert = "insert into lab_runner (seen_at) values (now() + interval '1 hour')";
    sqlx::query(insert).execute(&shop.pool).await.unwrap();
}

pub async fn upload(visitor: &Visitor, csrf: &str, file: &[u8]) -> Page {
    upload_to("/lab/files", visitor, csrf, file).await
}

pub async fn upload_to(path: &str, visitor: &Visitor, csrf: &str, file: &[u8]) -> Page {
    let mut body = format!(
        "--{EDGE}\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\n{csrf}\r\n--{EDGE}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"run.json\"\r\n\
         Content-Type: application/json\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{EDGE}--\r\n").as_bytes());
    let kind = format!("multipart/form-data; boundary={EDGE}");
    let form = visitor.form_request(path, "").header(CONTENT_TYPE, kind);
    // The form has one already; two would be invalid.
    let mut form = form.body(body).build().unwrap();
    let kind = form.headers().get_all(CONTENT_TYPE).iter().next_back().unwrap().clone();
    form.headers_mut().insert(CONTENT_TYPE, kind);
    Page::read(visitor.http.execute(form).await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lesson_takes_a_guess_before_it_explains() {
    let shop = with_run(&oversold()).await;
    register_runner(&shop).await;
    let visitor = Visitor::new(&shop);
    let map = visitor.get("/lab").await.words();
    for shown in [
        "Start here: The lost update",
        "Why a lock 0 of 5 done",
        "1 The lost update 4 min · ◆◇◇difficulty 1 of 3 2 A mutex on two replicas",
        "12 The fencing token 6 min · ◆◆◆difficulty 3 of 3 · after 10, 11",
    ] {
        assert!(map.contains(shown), "{shown}: {map}");
    }
    let lesson = visitor.get("/lab/lessons/lost-update").await;
    let screen = lesson.text.split("class=\"handout\"").next().unwrap();
    for shown in ["crates/holdfast-shop/src/strategy/none.rs", "pub async fn read("] {
        assert!(lesson.words().contains(shown), "{shown}: {}", lesson.words());
    }
    for early in ["both read 10", "is two steps", "answers so far"] {
        assert!(!screen.contains(early), "{early} is shown too early");
    }
    // A guess is the point; a presenter may run without one.
    assert_eq!(screen.matches("name=\"guess\" required").count(), 4, "the form asks for a guess");
    assert!(screen.contains("formnovalidate>Run without a guess</button>"), "{screen}");
    let handout = lesson.text.split("class=\"handout\"").nth(1).unwrap();
    let (question, responses) = handout.split_once("class=\"answers\"").unwrap();
    let response = "a check for negative stock finds nothing";
    assert!(!question.contains(response) && responses.contains(response), "{handout}");
    let question = screen.split("action=\"/lab/lessons/").nth(1).unwrap();
    let question = question.split("class=\"buttons\"").next().unwrap();
    let question = Page { text: format!("<form {question}"), ..lesson };
    assert!(question.words().split(' ').count() <= 80, "{}", question.words());

    let queued = visitor.post("/lab/lessons/lost-update/runs", "guess=1&buyers=8").await;
    assert_eq!(queued.status, 303, "{}", queued.text);
    let waiting = visitor.get(&queued.location).await;
    assert!(waiting.words().contains("Queued, 1st in line"), "{}", waiting.words());
    assert!(waiting.text.contains("<noscript><meta http-equiv=\"refresh\""));
    assert!(!waiting.words().contains("is two steps"), "the takeaways are shown too early");
    let lesson = visitor.get("/lab/lessons/lost-update").await;
    let screen = lesson.text.split("class=\"handout\"").next().unwrap();
    for shown in ["Your answer:", "The first answer counts.", "1 answer so far", "Watch the run"] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    for early in ["both read 10", ">correct<"] {
        assert!(!screen.contains(early), "{early} is shown before the run: {screen}");
    }
    let end = "update lab_runs set state = 'done', ended_at = now() where state = 'queued'";
    sqlx::query(end).execute(&shop.pool).await.unwrap();
    visitor.get(&queued.location).await;
    let lesson = visitor.get("/lab/lessons/lost-update").await.words();
    for shown in [
        "Not quite. Your answer: fewer than 100",
        "Overlapping orders do not fail",
        "The answer is: more than 100",
        "both read 10",
        "correct",
        "See what happened",
    ] {
        assert!(lesson.contains(shown), "{shown}: {lesson}");
    }
    let map = visitor.get("/lab").await.words();
    for shown in [
        "Continue: A mutex on two replicas",
        "Why a lock 1 of 5 done",
        "1 The lost update ●done 4 min",
    ] {
        assert!(map.contains(shown), "{shown}: {map}");
    }
    let other = Visitor::new(&shop).get("/lab/lessons/lost-update").await.words();
    assert!(!other.contains("answer so far"), "another visitor has not answered: {other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn presentation_keeps_its_address() {
    let shop = with_run(&oversold()).await;
    register_runner(&shop).await;
    let visitor = Visitor::new(&shop);
    let run = format!("/lab/runs/{ID}");
    for path in ["/lab", "/lab/lessons/lost-update", &run] {
        assert!(!visitor.get(path).await.text.contains("/static/present.css"), "{path}");
        let page = visitor.get(&format!("{path}?present")).await;
        assert!(page.text.contains("/static/present.css"), "{path}");
        assert!(page.text.contains("/lab/lessons/one-replica?present"), "{path}");
        let link = format!("href=\"{path}?present\">Present</a>");
        assert!(visitor.get(path).await.text.contains(&link), "{path} has no link");
        assert!(page.text.contains(&format!("href=\"{path}\">End the presentation</a>")), "{path}");
    }
    let started = visitor.post("/lab/lessons/fence/runs?present", "guess=0").await;
    assert!(started.location.ends_with("?present"), "{}", started.location);
}

/// Every id is unique, and every text is Chinese where the visitor prefers it.
#[tokio::test(flavor = "multi_thread")]
async fn lab_pages_have_unique_ids_and_languages() {
    let shop = with_run(&oversold()).await;
    let visitor = Visitor::new(&shop);
    let run = format!("/lab/runs/{ID}");
    for (path, chinese) in [
        ("/lab", "为什么要加锁"),
        ("/lab/lessons/lost-update", "会卖出多少件"),
        (&run, "43 件商品是多卖的，并不存在"),
    ] {
        let page = visitor.get(path).await;
        let ids: Vec<&str> =
            page.text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(ids.len(), unique.len(), "{path}: {ids:?}");
        let request = visitor.page_request(path).header("Accept-Language", "zh-CN,en;q=0.5");
        let page = Page::read(request.send().await.unwrap()).await;
        assert!(page.words().contains(chinese), "{path}: {}", page.words());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_report_errors_per_field() {
    let shop = TestShop::start(1).await;
    register_runner(&shop).await;
    let visitor = Visitor::new(&shop);
    let form = "guess=7&orders=many&stock=&work_ms=1001";
    let wrong = visitor.post("/lab/lessons/lost-update/runs", form).await;
    assert_eq!(wrong.status, 422);
    for (id, why) in [
        ("orders-wrong", "Type a whole number, 1 to 5,000."),
        ("work_ms-wrong", "Type a whole number, 0 to 1,000."),
        ("guess-wrong", "Choose one of the answers."),
    ] {
        let error = wrong.text.split(&format!("id=\"{id}\"")).nth(1).unwrap();
        assert!(error.split("</p>").next().unwrap().contains(why), "{id}");
    }
    assert!(wrong.text.contains("value=\"many\""));

    let submit = async |form: &str| visitor.post("/lab/runs", form).await;
    for (form, id) in [
        ("stock=5", "strategies"),
        ("strategies=none&buyers=65", "buyers"),
        ("strategies=none&work_ms=-1", "work_ms"),
        ("strategies=none&seed=x", "seed"),
        ("strategies=none&fault=flush-redis&fault_for_ms=10001", "fault_for_ms"),
    ] {
        let wrong = submit(form).await;
        assert_eq!(wrong.status, 422, "{form}");
        assert!(wrong.text.contains(&format!("id=\"{id}-wrong\"")), "{form}");
    }
    let words = submit("strategies=batched&wait=retry").await.words();
    assert!(words.contains("One of the strategies does not have this mode."), "{words}");
    assert_eq!(shop.number("select count(*) from lab_runs").await, 0);
    let queued = submit("strategies=none&strategies=batched&stock=1,000&journey=pay&wait=").await;
    assert_eq!(queued.status, 303, "{}", queued.text);
    let words = visitor.get(&queued.location).await.words();
    assert!(words.contains("Your own load: none, batched"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_page_shows_verdict_and_evidence() {
    let shop = with_run(&oversold()).await;
    register_runner(&shop).await;
    let visitor = Visitor::new(&shop);
    assert_eq!(visitor.post("/lab/lessons/lost-update/runs", "guess=0").await.status, 303);
    let page = visitor.get(&format!("/lab/runs/{ID}")).await;
    let words = page.words();
    for shown in [
        // The shortest of three pairs.
        "Both requests read 57, 1.9 ms apart, and both wrote 56.",
        "43 units that do not exist 100 sold of 57, 31 forks in the ledger (one fork may have several orders) ✗ The books of this run do not balance",
        "Not quite. Your answer: exactly 100 Without a lock, two orders read the same stock",
        "and sell the same unit twice. The answer is: more than 100, and the stock never",
        "Side by side: the same arrivals none 43 units that do not exist batched 57 of 57 units sold, none twice",
        "before 57 −1 → 56 8080 · order 1 −1 → 56 8081 · order 2 −1 → 56 8080 · order 3",
        "The first two read version 3, 1.9 ms apart.",
        "update items set stock = 56 where sku = $1 -- same statement: stock_ledger",
        "sold 100 57",
        "oversold 43 0",
        "57 × 201, 43 × 409",
        "longest stall 12 ms",
        "is two steps",
        "B &#60;b&#62;reads&#60;/b&#62; it too.",
        "Concurrent buyers8",
    ] {
        assert!(words.contains(shown), "{shown}\n{words}");
    }
    let at = |text: &str| page.text.find(text).unwrap_or_else(|| panic!("{text}"));
    let order = [
        "id=\"verdict\"",
        "class=\"prediction\"",
        "class=\"player\"",
        "id=\"claim-title\"",
        "class=\"buttons\"",
        "class=\"bars guesses\"",
        "<details class=\"details more\">",
        "id=\"beside-title\"",
        "class=\"tabs\"",
    ];
    assert!(order.is_sorted_by_key(|text| at(text)), "judged, then watched, then explained");
    assert_eq!(words.matches("Effect shown").count(), 0, "the verdict says enough");
    assert!(page.text.contains("class=\"off\">−1 → 56"), "an oversold unit is marked");
    let main = page.text.split("<main").nth(1).unwrap();
    assert!(!page.text.contains("http-equiv") && !main.contains('✓'));
}

#[tokio::test(flavor = "multi_thread")]
async fn short_load_has_no_empty_curve() {
    let mut run = oversold();
    assert!(run.outcome.arms[0].samples.len() > 2);
    let shop = with_run(&run).await;
    let visitor = Visitor::new(&shop);
    let page = visitor.get(&format!("/lab/runs/{ID}")).await;
    assert_eq!(page.text.matches("data-curves").count(), 1, "one pair of axes");
    assert!(page.words().contains("Orders per second none"), "{}", page.words());
    for sample in &mut run.outcome.arms[0].samples {
        sample.t_ms /= 50;
    }
    run.id = uuid::Uuid::now_v7();
    assert!(store::import(&shop.pool.clone().into(), &run).await.unwrap());
    let page = visitor.get(&format!("/lab/runs/{}", run.id)).await;
    assert!(!page.text.contains("data-curves") && !page.text.contains("uplot"));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_page_is_small_when_compressed() {
    let shop = with_run(&oversold()).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let path = format!("/lab/runs/{ID}");
    let text = admin.get(&path).await.text;
    let mut all = vec![path.as_str()];
    let assets = text.split('"').filter(|part| part.starts_with("/static/"));
    all.extend(assets.filter(|path| !path.ends_with(".woff2")));
    assert!(all.len() > 6, "{all:?}");
    let (mut bytes, mut scripts) = (0, 0);
    for path in all {
        let packed = admin.page_request(path).header(ACCEPT_ENCODING, "gzip").send().await.unwrap();
        assert_eq!(packed.headers()["content-encoding"], "gzip", "{path}");
        let weight = packed.bytes().await.unwrap().len();
        bytes += weight;
        scripts += if path.contains(".js") { weight } else { 0 };
    }
    let fonts = text.split('"').filter(|part| part.ends_with(".woff2"));
    let mut all_bytes = bytes;
    for path in fonts {
        let font = admin.page_request(path).header(ACCEPT_ENCODING, "gzip").send().await.unwrap();
        assert!(!font.headers().contains_key("content-encoding"), "{path}");
        let weight = font.bytes().await.unwrap().len();
        assert!(weight < 30_000, "{path}");
        all_bytes += weight;
    }
    let style = text.split('"').find(|part| part.contains("/holdfast.css")).unwrap();
    let plain = admin.page_request(style).header(ACCEPT_ENCODING, "gzip;q=0").send().await.unwrap();
    assert!(!plain.headers().contains_key("content-encoding"), "{:?}", plain.headers());
    assert!(
        all_bytes < 130_000 && bytes < 72_000 && scripts < 40_000,
        "{bytes}, {scripts} of them script"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn opened_files_are_pruned() {
    let shop = TestShop::without_replicas().await;
    let pool = shop.pool.clone().into();
    let mut run = oversold();
    for n in 0..store::MAX_KEPT_RUNS + 5 {
        run.id = uuid::Uuid::now_v7();
        // The oldest run is imported last.
        run.created_at -= time::Duration::days(n);
        assert!(store::import(&pool, &run).await.unwrap());
    }
    assert_eq!(shop.number("select count(*) from lab_runs").await, store::MAX_KEPT_RUNS);
    assert!(
        store::find(&pool, run.id).await.unwrap().is_some(),
        "the run that was imported last is kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn run_file_with_extreme_numbers_is_shown() {
    let mut run = oversold();
    run.request.lesson = Some("<script>alert(1)</script>".to_owned());
    for arm in &mut run.outcome.arms {
        let [a, b] = [i64::MIN, i64::MAX];
        (arm.stock_opening, arm.sold, arm.stock, arm.oversold) = (a, b, a, b);
        (arm.undersold, arm.drift, arm.breaks, arm.forks) = (a, b, a, b);
        arm.statuses.insert("0".to_owned(), u64::MAX);
        for sample in &mut arm.samples {
            (sample.t_ms, sample.sold, sample.stock, sample.waiting) = (u64::MAX, a, b, u64::MAX);
        }
        for bucket in &mut arm.waits {
            bucket.count = u64::MAX;
        }
        for fork in &mut arm.forked {
            fork.before = a;
            fork.entries[0].delta = a;
            fork.entries[0].after = b;
        }
    }
    let mut money = run.outcome.arms[0].clone();
    money.sku = None;
    run.outcome.arms.push(money);
    for (place, lane) in run.outcome.lanes.iter_mut().enumerate() {
        lane.label = "</ol><script>".into();
        lane.arm = Some(usize::MAX);
        lane.answered_us = None;
        lane.events[1].at_us = if place == 0 { u64::MAX } else { 0 };
        lane.events[1].detail.value = Some(holdfast_story::Value::Units(i64::MIN));
        lane.events[1].key = "{user:".to_owned();
    }
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let csrf = admin.get("/lab").await.csrf();
    let imported = upload(&admin, &csrf, &serde_json::to_vec(&run).unwrap()).await;
    assert_eq!(imported.status, 303, "{}", imported.words());
    for path in [imported.location.as_str(), "/lab/runs"] {
        let page = admin.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.words());
        assert!(!page.text.contains("<script>"), "{path}");
    }
    assert_eq!(admin.get(&format!("{}/file", imported.location)).await.status, 200);
}
