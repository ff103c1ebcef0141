//! A class: joining it, the teacher's page and the end.

use futures_util::future::join_all;
use holdfast_lab::class;
use holdfast_lab::lessons;
use holdfast_lab::progress::{self, HandInResult, Visitor as LabVisitor};
use holdfast_lab::run::LabRun;
use holdfast_lab::store;
use holdfast_shop::UserId;
use holdfast_testkit::TestShop;
use serde_json::json;
use uuid::Uuid;

use crate::axe::violations;
use crate::axe_core::axe;
use crate::browser::Browser;
use crate::lab::{ID, oversold, register_runner, with_run};
use crate::visitor::{Page, Visitor};

pub const CLASS: [(&str, &str); 1] = [("HOLDFAST_LAB", "class")];

pub async fn class_shop() -> (TestShop, String) {
    let shop = TestShop::start_with(1, &CLASS).await;
    let code = class::open(&shop.pool.clone().into()).await.unwrap();
    (shop, code)
}

/// Posts the form as a browser does, with the nickname escaped.
pub async fn join(visitor: &Visitor, code: &str, nickname: &str) -> Page {
    let fields = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("code", code), ("nickname", nickname)])
        .finish();
    visitor.post("/join", &fields).await
}

pub async fn joined(shop: &TestShop, code: &str, nickname: &str) -> Visitor {
    let visitor = Visitor::new(shop);
    let page = join(&visitor, code, nickname).await;
    assert_eq!((page.status.as_u16(), page.location.as_str()), (303, "/lab"), "{}", page.words());
    visitor
}

pub async fn student_id(shop: &TestShop, nickname: &str) -> UserId {
    let id = sqlx::query_scalar("select id from users where nickname = $1").bind(nickname);
    UserId(id.fetch_one(&shop.pool).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn nickname_is_visible_and_of_one_device() {
    let (shop, code) = class_shop().await;
    let wrong = join(&Visitor::new(&shop), "AAAAAA", "Mia").await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.words().contains("No class has this code"), "{}", wrong.words());
    assert!(wrong.text.contains("value=\"Mia\""), "the input is kept");

    for nickname in ["", "   ", "\u{3000}", &"x".repeat(200), "\u{202e}aiM", "a\u{200b}b", "a\0b"] {
        let refused = join(&Visitor::new(&shop), &code, nickname).await;
        assert_eq!(refused.status, 422, "{nickname:?}");
        assert!(refused.words().contains("1 to 24 characters that can be seen"), "{nickname:?}");
    }
    assert_eq!(shop.number("select count(*) from users where nickname is not null").await, 0);

    // As people type the code, and with white space around and within the name.
    let typed = format!(" {}-{} ", code[..3].to_lowercase(), &code[3..]);
    let mia = joined(&shop, &typed, "  Mia \t Lu ").await;
    let page = mia.get("/join").await.words();
    assert!(page.contains("You are in the class as Mia Lu"), "{page}");
    let taken = join(&Visitor::new(&shop), &code, "mIA lu").await;
    assert_eq!(taken.status, 409);
    assert!(taken.words().contains("Somebody is in the class as Mia Lu"));

    let markup = joined(&shop, &code, "<b>Bo</b>\"&").await;
    let page = markup.get("/lab").await;
    assert!(page.text.contains("&lt;b&gt;Bo") || page.text.contains("&#60;b&#62;Bo"));
    assert!(!page.text.contains("<b>Bo"), "{}", page.text);

    // Signing out frees the name, with all that belongs to it.
    let before = student_id(&shop, "Mia Lu").await;
    let csrf = mia.get("/join").await.csrf();
    mia.post("/sign-out", &format!("csrf={csrf}")).await;
    joined(&shop, &code, "MIA LU").await;
    assert_eq!(student_id(&shop, "Mia Lu").await, before);

    // Disabled by an admin, which ends the sessions: neither in the class nor an error.
    shop.execute("update users set disabled_at = now() where nickname is not null").await;
    shop.execute("delete from sessions").await;
    assert_eq!(join(&Visitor::new(&shop), &code, "Mia Lu").await.status, 409);
}

/// Postgres alone folds ASCII only, in the locale C.
#[tokio::test(flavor = "multi_thread")]
async fn nickname_is_one_in_any_case_and_normal_form() {
    let (shop, code) = class_shop().await;
    for (joins, others) in [
        ("Émile", &["émile", "ÉMILE", "E\u{301}mile", "e\u{301}mile"][..]),
        ("ömer", &["ÖMER", "O\u{308}mer"]),
        ("Jose\u{301}", &["José", "JOSÉ"]),
        ("ΝΊΚΟΣ", &["Νίκος"]),
        ("タロウ", &["ﾀﾛｳ"]),
        ("小明", &["  小明 "]),
        ("Ｍｉａ", &["Mia"]),
        ("한", &["\u{1112}\u{1161}\u{11ab}"]),
    ] {
        let student = joined(&shop, &code, joins).await;
        for other in others {
            let taken = join(&Visitor::new(&shop), &code, other).await;
            assert_eq!(taken.status, 409, "{joins} and {other}: {}", taken.location);
            let shown = joins.replace("e\u{301}", "é");
            let why = format!("Somebody is in the class as {shown}");
            assert!(taken.words().contains(&why), "{other}: {}", taken.words());
        }

        // Signing out frees the name: who joins under another form of it goes on.
        let csrf = student.get("/join").await.csrf();
        student.post("/sign-out", &format!("csrf={csrf}")).await;
        joined(&shop, &code, others[0]).await;
    }
    assert_eq!(shop.number("select count(*) from users where nickname is not null").await, 8);

    // Other letters are other names.
    for other in ["Emile", "Omer", "小民", "太郎", "Weiß", "Weiss"] {
        joined(&shop, &code, other).await;
    }
    // 24 characters, however they are composed.
    joined(&shop, &code, &"e\u{301}".repeat(24)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_joins_at_once_make_one_student() {
    let (mut shop, code) = class_shop().await;
    shop.add_replica(&CLASS);
    let visitors: Vec<Visitor> = (0..20)
        .map(|n| Visitor { base: shop.replicas[n % 2].base_url.clone(), ..Visitor::new(&shop) })
        .collect();
    let pages = join_all(visitors.iter().map(|visitor| join(visitor, &code, "Mia"))).await;
    let statuses: Vec<u16> = pages.iter().map(|page| page.status.as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 19, "{statuses:?}");
    assert_eq!(shop.number("select count(*) from users where nickname is not null").await, 1);

    shop.execute(
        "insert into users (id, name, password_hash, nickname, folded_nickname)
         select gen_random_uuid(), 'class-' || n, '', 'n' || n, 'n' || n
           from generate_series(2, 200) n",
    )
    .await;
    let full = join(&Visitor::new(&shop), &code, "Late").await;
    assert_eq!(full.status, 409);
    assert!(full.words().contains("200 students are in the class"), "{}", full.words());

    // Guesses of the code are limited, for each address.
    let guesses = (0..60).map(|_| async { join(&visitors[0], "AAAAAA", "Eve").await.status });
    let statuses = join_all(guesses).await;
    assert!(statuses.iter().any(|status| *status == 429), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_of_a_class_is_led_to_join() {
    let (shop, code) = class_shop().await;
    register_runner(&shop).await;
    let stranger = Visitor::new(&shop);
    for path in ["/lab/class", "/lab/class.csv", "/lab/class/answers.csv", "/audit", "/orders"] {
        let led = stranger.get(path).await;
        assert_eq!(led.location, format!("/join?next={path}"), "{path}");
    }
    let page = stranger.get("/join?next=/lab/class").await;
    assert!(page.text.contains("/sign-in?next=/lab/class"), "the teacher's way: {}", page.text);
    assert!(!stranger.get("/sign-in").await.text.contains("/sign-up"));
    for path in ["/sign-up", "/api/users"] {
        let refused = stranger.post(path, "user=dora&password=long-enough").await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.words());
    }

    let form = "/lab/lessons/lost-update/runs";
    let remote = stranger.form_request(form, "guess=0").header("X-Forwarded-For", "192.0.2.1");
    let led = Page::read(remote.send().await.unwrap()).await;
    assert!(led.location.starts_with("/join?next="), "{}", led.location);

    // From another machine, too: a student runs the lesson as it is.
    let mia = joined(&shop, &code, "Mia").await;
    let csrf = mia.get("/join").await.csrf();
    let fields = format!("csrf={csrf}&guess=1&stock=7&orders=9");
    let run = mia.form_request(form, &fields).header("X-Forwarded-For", "192.0.2.1");
    let run = Page::read(run.send().await.unwrap()).await;
    assert!(run.location.starts_with("/lab/runs/"), "{}", run.words());
    let changed = "select count(*) from lab_runs
        where wanted ->> 'stock' = '7' or wanted ->> 'orders' = '9'";
    assert_eq!(shop.number(changed).await, 0);
    assert!(!mia.get("/lab/lessons/lost-update").await.text.contains("name=\"stock\""));

    // What is the teacher's says so, and does not ask to sign in.
    for (language, why) in [("en", "ask the teacher"), ("zh", "请告诉教师")] {
        let refused = mia.get_in(language, "/admin").await;
        let main = refused.text.split("<main").nth(1).unwrap();
        assert!(refused.words().contains(why) && main.contains("href=\"/lab\""), "{main}");
        assert!(!main.contains("/sign-in"), "{main}");
    }
    let stale = mia.post(form, "csrf=old&guess=1").await;
    assert_eq!(stale.status, 403);
    let main = stale.text.split("<main").nth(1).unwrap();
    assert!(!main.contains("teacher") && !stale.text.contains("/sign-in"), "{}", stale.text);
    // On a phone, whose place it is.
    assert!(mia.get("/shop").await.text.contains("class=\"name student\">Mia<"));
}

/// Stores what a student did: an answer, a lesson done, stars, a run that was handed in.
async fn work(shop: &TestShop, student: UserId, guess: usize, note: &str) {
    let pool = shop.pool.clone().into();
    let visitor = LabVisitor { id: student.0, user: Some(student) };
    assert!(progress::answer(&pool, "lost-update", visitor, guess).await.unwrap());
    assert!(progress::set_stars(&pool, "oversell", visitor, 3).await.unwrap());
    let run = ID.parse().unwrap();
    assert!(progress::mark_done(&pool, "lost-update", visitor, run).await.unwrap());
    let handed_in = progress::hand_in(&pool, "lost-update", visitor, run, note).await.unwrap();
    assert_eq!(handed_in, HandInResult::Stored);
}

pub async fn class_with_run() -> (TestShop, String, Visitor) {
    let mut shop = with_run(&oversold()).await;
    // The run is of this shop, not from a file.
    shop.execute("update lab_runs set from_file = false").await;
    shop.replicas.clear();
    shop.add_replica(&CLASS);
    let code = class::open(&shop.pool.clone().into()).await.unwrap();
    let teacher = Visitor::signed_in(&shop, "admin").await;
    (shop, code, teacher)
}

/// A form that deletes needs the tick beside its button.
async fn deletes_nothing_by_a_slip(teacher: &Visitor, csrf: &str, code: &str, student: UserId) {
    let remove = format!("act=remove&student={}", student.0);
    let end = format!("code={code}");
    for (form, fields) in [("reset", ""), ("end", end.as_str()), ("students", remove.as_str())] {
        let form = format!("/lab/class/{form}");
        let refused = teacher.post(&form, &format!("csrf={csrf}&{fields}")).await;
        assert_eq!(refused.status, 422, "{form}");
        assert!(refused.words().contains("Tick the box above the button"), "{}", refused.words());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn board_and_files_have_what_the_class_did() {
    let (shop, code, teacher) = class_with_run().await;
    let (mia, formula) =
        (joined(&shop, &code, "小明").await, joined(&shop, &code, "=1+1, \"x\"").await);
    let (of_mia, of_formula) =
        (student_id(&shop, "小明").await, student_id(&shop, "=1+1, \"x\"").await);
    let right = lessons::named("lost-update").unwrap().right;
    work(&shop, of_mia, right, "two lines:\n读到同一个库存").await;
    work(&shop, of_formula, (right + 1) % 4, "-2+3").await;

    let page = teacher.get("/lab/class").await;
    let words = page.words();
    assert!(words.contains("2 of 2 are signed in"), "{words}");
    assert!(words.contains("小明 1 1 1 3 1 just now"), "the best first: {words}");
    assert!(page.text.contains(&code) && page.text.contains(&format!("{}/join", mia.base)));

    let file = teacher.http.get(format!("{}/lab/class.csv", teacher.base)).send().await.unwrap();
    assert_eq!(file.headers()["content-type"], "text/csv; charset=utf-8; header=present");
    let bytes = file.bytes().await.unwrap();
    assert_eq!(&bytes[..3], b"\xef\xbb\xbf");
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let all = lessons::LESSONS.len();
    assert!(text.contains(&format!("\r\n小明,1,{all},1,1,3,1,20")), "{text}");
    let row = format!("\r\n\"'=1+1, \"\"x\"\"\",1,{all},1,0,3,1,20");
    assert!(text.contains(&row), "{text}");
    let answers = teacher.get("/lab/class/answers.csv").await.text;
    let row = format!("小明,lost-update,{},yes,20", right + 1);
    assert!(answers.contains(&row), "{answers}");
    assert!(answers.contains("\"two lines:\n读到同一个库存\""), "{answers}");
    assert!(answers.contains(",'-2+3,"), "{answers}");
    assert!(answers.contains("小明,level-oversell,,,,,3,"), "{answers}");

    // What was handed in stays, however many runs follow.
    shop.execute(
        "insert into lab_runs (id, wanted, state, outcome, ended_at)
         select gen_random_uuid(), '{}', 'done', '{}', now() + interval '1 minute'
           from generate_series(1, 250)",
    )
    .await;
    let newest = LabRun { id: Uuid::now_v7(), ..oversold() };
    assert!(store::import(&shop.pool.clone().into(), &newest).await.unwrap());
    assert_eq!(teacher.get(&format!("/lab/runs/{ID}")).await.status, 200);
    assert!(shop.number("select count(*) from lab_runs").await <= store::MAX_KEPT_RUNS + 1);

    let csrf = page.csrf();
    let change = async |act: &str, student: UserId| {
        let form = format!("csrf={csrf}&sure=yes&act={act}&student={}", student.0);
        assert_eq!(teacher.post("/lab/class/students", &form).await.status, 303, "{act}");
    };
    // A phone that has lost its place: free, twice, then join again with the same answers.
    change("free", of_mia).await;
    change("free", of_mia).await;
    assert!(mia.get("/orders").await.location.starts_with("/join"));
    joined(&shop, &code, "小明").await;
    assert_eq!(student_id(&shop, "小明").await, of_mia);

    change("remove", of_formula).await;
    assert!(formula.get("/orders").await.location.starts_with("/join"));
    let page = teacher.get("/lab/class").await.words();
    assert!(page.contains("1 of 1 are signed in") && !page.contains("1+1"), "{page}");
    // Not the teacher, nor any other user.
    let admin = shop.number("select count(*) from sessions").await;
    let id = shop.user_id("admin").await;
    change("remove", id).await;
    change("free", id).await;
    assert_eq!(shop.number("select count(*) from sessions").await, admin);

    deletes_nothing_by_a_slip(&teacher, &csrf, &code, of_mia).await;
    let reset = format!("csrf={csrf}&sure=yes");
    assert_eq!(teacher.post("/lab/class/reset", &reset).await.status, 303);
    let of_students = "select count(*) from lab_progress p join users u on u.id = p.user_id
        where u.nickname is not null";
    assert_eq!(shop.number(of_students).await, 0);
    let page = teacher.get("/lab/class").await.words();
    assert!(page.contains("小明 0 0 0 0 0 just now"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_leave_with_the_class_and_ledgers_stay() {
    let (shop, code, teacher) = class_with_run().await;
    let mia = joined(&shop, &code, "Mia").await;
    work(&shop, student_id(&shop, "Mia").await, 2, "note").await;
    let (order, csrf) = mia.buy("key-ring", 1).await;
    let ledgers =
        "select (select count(*) from stock_ledger) + (select count(*) from balance_ledger)";
    let before = (shop.number(ledgers).await, shop.number("select count(*) from orders").await);

    for form in ["students", "reset", "end"] {
        let path = format!("/lab/class/{form}");
        assert_eq!(mia.post(&path, &format!("csrf={csrf}")).await.status, 403, "{path}");
        assert_eq!(teacher.post(&path, "csrf=forged").await.status, 403, "{path}");
    }

    let end = format!("csrf={}&sure=yes&code={code}", teacher.get("/lab/class").await.csrf());
    let page = teacher.post("/lab/class/end", &end).await;
    assert_eq!(page.location, "/lab/class?done=end");
    let next = class::code(&shop.pool.clone().into()).await.unwrap().unwrap();
    assert_ne!(next, code);
    // Sent twice, it does not end the next class.
    let noa = joined(&shop, &next, "Noa").await;
    teacher.post("/lab/class/end", &end).await;
    assert_eq!(class::code(&shop.pool.clone().into()).await.unwrap().unwrap(), next);
    assert_eq!(noa.get("/orders").await.status, 200);

    assert!(mia.get(&order).await.location.starts_with("/join"), "the session has ended");
    assert_eq!(join(&mia, &code, "Mia").await.status, 422, "the code has changed");
    for nothing in [
        "select count(*) from users where nickname = 'Mia' or name like '%mia%'",
        "select count(*) from lab_progress",
        "select count(*) from sessions s join users u on u.id = s.user_id
          where u.name like 'class-%' and u.nickname is null",
    ] {
        assert_eq!(shop.number(nothing).await, 0, "{nothing}");
    }
    let after = (shop.number(ledgers).await, shop.number("select count(*) from orders").await);
    assert_eq!(before, after);
    shop.assert_sound().await;
}

/// Returns the violations of every state of the class's pages, in a browser of the teacher.
async fn violations_of_class(screen: &Browser) -> Vec<String> {
    let axe = axe();
    let mut found = Vec::new();
    let open = "document.querySelectorAll('details').forEach((it) => { it.open = true; })";
    for (name, path, signed_in) in [
        ("class", "/lab/class?done=reset", true),
        ("class presented", "/lab/class?present", true),
        ("class joined", "/join", true),
        ("exercise", "/lab/exercise", true),
        ("join", "/join", false),
        ("join by code", "/join/ABC234", false),
        ("join wrong", "/join/ABC234", false),
    ] {
        if !signed_in {
            screen.driver.delete_all_cookies().await.unwrap();
        }
        screen.go(path).await;
        if name == "class presented" {
            let side = "return document.querySelector('.qr').getBoundingClientRect().width";
            let side = screen.driver.execute(side, vec![]).await.unwrap();
            assert!(side.json().as_f64().unwrap() >= 400.0, "{side:?}");
        }
        if name == "join wrong" {
            screen.fill("#nickname", "Noa").await;
            screen.click("form.stack button").await;
            screen.find("#code-wrong").await;
        }
        screen.driver.execute(open, vec![]).await.unwrap();
        screen.driver.execute(&*axe, vec![]).await.unwrap();
        found.extend(violations(screen, name, "en").await);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn phone_joins_and_hands_in() {
    let (shop, code, teacher) = class_with_run().await;
    let phone = Browser::open(&shop.replicas[0].base_url, true).await;
    let size = json!({ "width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true });
    phone.devtools("Emulation.setDeviceMetricsOverride", size).await;

    // The address of the QR code has the code.
    phone.go(&format!("/join/{code}")).await;
    assert!(phone.width().await <= 390);
    phone.fill("#nickname", "<script>alert(1)</script>").await;
    phone.click("form.stack button").await;
    phone.until_text("#nickname-wrong", "1 to 24 characters").await;
    // The browser reports the status 422; from here on there is nothing to report.
    phone.console_errors().await;
    phone.fill("#nickname", "<i>小明</i>").await;
    phone.click("form.stack button").await;
    phone.until_path("/lab").await;

    phone.go(&format!("/lab/runs/{ID}")).await;
    phone.fill("#note", "Two orders read 57.").await;
    phone.click("#hand-in button").await;
    phone.until_text("#hand-in", "Handed in.").await;
    let board = teacher.get("/lab/class").await.words();
    assert!(
        board.contains("&#60;i&#62;小明&#60;/i&#62; · The lost updateTwo orders read 57."),
        "{board}"
    );

    // It sleeps while the teacher frees the name: it is led to join again, and goes on.
    let form = format!(
        "csrf={}&act=free&student={}",
        teacher.get("/lab/class").await.csrf(),
        student_id(&shop, "<i>小明</i>").await.0
    );
    teacher.post("/lab/class/students", &form).await;
    phone.go("/orders").await;
    phone.until_path("/join?next=/orders").await;
    phone.fill("#code", &code).await;
    phone.fill("#nickname", "<i>小明</i>").await;
    phone.click("form.stack button").await;
    phone.until_path("/orders").await;
    phone.go(&format!("/lab/runs/{ID}")).await;
    phone.until_text("#note", "Two orders read 57.").await;
    assert!(phone.console_errors().await.is_empty());
    phone.close().await;

    // The board of a page that is open follows; every state passes axe.
    let screen = Browser::open(&shop.replicas[0].base_url, true).await;
    screen.go("/sign-in?next=/lab/class").await;
    screen.sign_in("admin").await;
    screen.until_text("#board", "1 of 1 are signed in").await;
    joined(&shop, &code, "Noa").await;
    screen.until_text("#board", "2 of 2 are signed in").await;
    let found = violations_of_class(&screen).await;
    screen.close().await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}
