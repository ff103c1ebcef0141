//! A class: thirty answer and run at once, an answer counts whether or not a run starts, one run is
//! watched by all who start its lesson, and the votes are hidden until the teacher shows them.

use futures_util::future::join_all;
use holdfast_base::messages::Language;
use holdfast_lab::class;
use holdfast_lab::lessons::LESSONS;
use holdfast_lab::run::LabRun;
use holdfast_lab::store::{self, MAX_QUEUED_RUNS};
use holdfast_testkit::TestShop;
use holdfast_testkit::proxy;
use uuid::Uuid;

use crate::browser::Browser;
use crate::join::joined;
use crate::lab::{oversold, register_runner};
use crate::race::bottom_of;
use crate::visitor::{Page, Visitor};

pub const LESSON: &str = "/lab/lessons/lost-update";
const ANSWERS: &str = "/lab/lessons/lost-update/answers";
pub const SHOW: &str = "/lab/lessons/lost-update/show-answers";
const RUNS: &str = "/lab/lessons/lost-update/runs";
const ANSWERED: &str = "select count(*) from lab_progress where guess is not null";

pub async fn class_shop() -> TestShop {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LAB", "class")]).await;
    register_runner(&shop).await;
    code(&shop).await;
    shop
}

pub async fn code(shop: &TestShop) -> String {
    class::open(&shop.pool.clone().into()).await.unwrap()
}

/// Returns how often an answer was given, as a page shows it; `?` while that is hidden.
fn votes_of(page: &Page) -> Vec<String> {
    let cells = page.text.split("<td class=\"number\">").skip(1);
    cells.map(|cell| cell.split('<').next().unwrap().to_owned()).collect()
}

/// Ends the runs that are queued, with a result.
async fn end_runs(shop: &TestShop) {
    let outcome = serde_json::to_value(&oversold().outcome).unwrap();
    let end =
        "update lab_runs set state = 'done', outcome = $1, frame = frame + 1, ended_at = now()
                where state in ('queued', 'running')";
    sqlx::query(end).bind(outcome).execute(&shop.pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn class_presses_at_once() {
    let shop = class_shop().await;
    let first = Browser::open(&shop.replicas[0].base_url, true).await;
    let browsers = [first.beside().await, first.beside().await, first];
    for (browser, guess) in browsers.iter().zip(["0", "2", "2"]) {
        browser.go(LESSON).await;
        browser.click(&format!("input[value='{guess}']")).await;
    }
    let visitors: Vec<Visitor> = (0..27).map(|_| Visitor::new(&shop)).collect();

    let press = async |browser: &Browser| {
        browser.click("#run").await;
        browser.until_path("/lab/runs/").await
    };
    let post = async |(number, visitor): (usize, &Visitor)| {
        let page = visitor.post(RUNS, &format!("guess={}", number % 4)).await;
        assert_eq!(page.status, 303, "{}", page.words());
        page.location
    };
    let (seen, sent) = tokio::join!(
        join_all(browsers.iter().map(press)),
        join_all(visitors.iter().enumerate().map(post))
    );
    let run = &sent[0];
    assert!(sent.iter().chain(&seen).all(|other| other == run), "{sent:?} {seen:?}");
    assert_eq!(shop.number("select count(*) from lab_runs").await, 1);
    assert_eq!(shop.number(ANSWERED).await, 30);

    // An audience sees the votes before the run, and not which answer is right.
    let audience = visitors[0].get(&format!("{LESSON}?present")).await;
    let words = audience.words();
    assert!(words.contains("30 answers so far") && !words.contains("correct"), "{words}");
    assert_eq!(votes_of(&audience), ["?"; 4]);
    assert_eq!(visitors[0].post(SHOW, "").await.location, format!("{LESSON}?present"));
    assert_eq!(votes_of(&visitors[0].get(LESSON).await), ["8", "7", "9", "6"]);

    let start = "update lab_runs set state = 'running', frame = frame + 1";
    sqlx::query(start).execute(&shop.pool).await.unwrap();
    for browser in &browsers {
        browser.until_text("#state", "Running").await;
    }
    end_runs(&shop).await;
    for browser in &browsers {
        browser.until_text("#verdict", "43").await;
        browser.until_text(".bars caption", "30 answers so far").await;
    }
    for visitor in &visitors {
        let words = visitor.get(run).await.words();
        assert!(words.contains("43 units that do not exist"), "{words}");
    }
    let done = "select count(*) from lab_progress where done_at is not null";
    assert_eq!(shop.number(done).await, 30);
    // The projector offers the run, whoever has started it and whatever it shows.
    for (page, link) in [(LESSON, "See what happened"), ("/lab", "Result: The lost update")] {
        let shown = visitors[0].get(&format!("{page}?present")).await;
        let offered = format!("href=\"{run}?present\">{link}</a>");
        assert!(shown.text.contains(&offered), "{page}: {}", shown.text);
    }
    let live = visitors[0].get("/bar?present").await.text;
    assert!(live.contains("id=\"class-run\"") && live.contains(run.as_str()), "{live}");
    let refreshed = visitors[0].page_request("/bar?present");
    let page_of_run = format!("{}{run}?present", visitors[0].base);
    let live = refreshed.header("Referer", page_of_run).send().await.unwrap();
    let live = Page::read(live).await.text;
    assert!(!live.contains(run.as_str()), "its own page does not offer it: {live}");
    assert!(!visitors[0].get("/lab").await.text.contains("Result:"), "not on a phone");
    let audience = visitors[0].get(&format!("{run}?present")).await.words();
    assert!(audience.contains("correct") && !audience.contains("Your answer"), "{audience}");
    let ending = "The most votes went to 3, and here is why not: An order sells only if";
    assert!(audience.contains(ending), "{audience}");
    for browser in browsers {
        browser.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_counts_without_a_run() {
    let redis = proxy::to_redis().await;
    let mut shop = class_shop().await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    shop.add_replica(&[("HOLDFAST_LAB", "class"), ("REDIS_URL", &url)]);
    let visitor = Visitor::new(&shop);
    let answered = visitor.post(ANSWERS, "guess=1").await;
    assert_eq!((answered.status.as_u16(), answered.location), (303, format!("{LESSON}#votes")));
    assert_eq!(shop.number("select count(*) from lab_runs").await, 0);

    // The answer is marked, and no other one counts.
    visitor.post(ANSWERS, "guess=3").await;
    let page = visitor.get(LESSON).await;
    let screen = page.text.split("class=\"handout\"").next().unwrap();
    let question = screen.split("<fieldset class=\"question\"").nth(1).unwrap();
    assert!(question.split('>').next().unwrap().contains(" disabled"), "{screen}");
    assert!(screen.contains("value=\"1\" checked"), "{screen}");
    for early in ["both read 10", ">correct<", "Answer and run"] {
        assert!(!screen.contains(early), "{early} is shown before the run: {screen}");
    }
    let stored = "select guess::bigint from lab_progress where guess is not null";
    assert_eq!(shop.number(stored).await, 1);
    let wrong = Visitor::new(&shop).post(ANSWERS, "").await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text.contains("id=\"guess-wrong\""), "{}", wrong.text);

    // The queue is full: the run is refused, and the answer counts.
    let fill = "insert into lab_runs (id, wanted)
                select gen_random_uuid(), '{\"strategies\": [\"none\"]}'
                  from generate_series(1, $1)";
    sqlx::query(fill).bind(MAX_QUEUED_RUNS).execute(&shop.pool).await.unwrap();
    let late = Visitor::new(&shop);
    let refused = late.post(RUNS, "guess=0").await;
    assert_eq!(refused.status, 503, "{}", refused.words());
    assert!(refused.text.contains(&format!("href=\"{LESSON}\"")), "{}", refused.text);
    let page = late.get(LESSON).await.words();
    assert!(page.contains("2 answers so far") && page.contains("Your answer:"), "{page}");

    redis.cut().await;
    let base = shop.replicas[1].base_url.clone();
    let without_redis = Visitor { base, ..Visitor::new(&shop) };
    assert_eq!(without_redis.post(ANSWERS, "guess=0").await.status, 303);
    assert_eq!(shop.number(ANSWERED).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_hidden_until_the_teacher_shows_them() {
    let shop = class_shop().await;
    let code = code(&shop).await;
    let teacher = Visitor::signed_in(&shop, "admin").await;
    let (mia, bo) = (joined(&shop, &code, "Mia").await, joined(&shop, &code, "Bo").await);
    let csrf = teacher.get("/lab/class").await.csrf();
    let post = async |visitor: &Visitor, path: &str, fields: &str| {
        let csrf = visitor.get("/join").await.csrf();
        visitor.post(path, &format!("csrf={csrf}{fields}")).await
    };

    assert_eq!(post(&mia, ANSWERS, "&guess=2").await.status, 303);
    let presented = format!("{LESSON}?present");
    let hidden = [mia.get(LESSON).await, teacher.get(&presented).await];
    let live = [format!("{LESSON}/votes"), format!("{LESSON}/votes?present")];
    let live = [mia.get(&live[0]).await, teacher.get(&live[1]).await];
    for page in hidden.iter().chain(&live) {
        assert_eq!(votes_of(page), ["?"; 4]);
        assert!(page.words().contains("1 answer so far"), "{}", page.words());
    }
    // Who has not answered sees nothing, and the projector runs without an answer.
    assert_eq!(votes_of(&bo.get(LESSON).await), [""; 0]);
    let buttons = hidden[1].text.split("class=\"buttons\"").nth(1).unwrap();
    let main = "<button class=\"main\" id=\"run\" type=\"submit\" formnovalidate>Run</button>";
    assert!(buttons.contains(main), "{buttons}");

    assert_eq!(post(&mia, SHOW, "").await.status, 403, "a student's");
    assert_eq!(teacher.post(SHOW, "csrf=forged").await.status, 403);
    assert_eq!(votes_of(&mia.get(LESSON).await), ["?"; 4]);
    for _ in 0..2 {
        let shown = teacher.post(SHOW, &format!("csrf={csrf}")).await;
        assert_eq!(shown.location, presented);
    }
    // Back to the page of a result, and not to the address of a form that was refused.
    let (result, refused) = ("/lab/runs/1?present", format!("{RUNS}?present"));
    for (from, back) in [(result, result), (refused.as_str(), presented.as_str())] {
        let shown = teacher.form_request(SHOW, &format!("csrf={csrf}"));
        let shown = shown.header("Referer", format!("{}{from}", teacher.base));
        assert_eq!(Page::read(shown.send().await.unwrap()).await.location, back);
    }
    assert_eq!(votes_of(&mia.get(LESSON).await), ["0", "0", "1", "0"]);
    assert_eq!(votes_of(&bo.get(LESSON).await), [""; 0], "not before the own one");

    // A later vote counts, and is marked.
    assert_eq!(post(&bo, ANSWERS, "&guess=0").await.status, 303);
    let late = "Late: the answers of the class had been shown.";
    assert!(bo.get(LESSON).await.words().contains(late));
    assert!(!mia.get(LESSON).await.words().contains(late));
    let page = teacher.get(&presented).await;
    assert!(page.words().contains("2 answers so far · 1 late"), "{}", page.words());
    assert_eq!(votes_of(&page), ["1", "0", "1", "0"]);
    assert_eq!(page.text.matches("class=\"late\"").count(), 1);
    let file = teacher.get("/lab/class/answers.csv").await.text;
    for (name, late) in [("Mia", "no"), ("Bo", "yes")] {
        let line = file.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.trim_end().ends_with(&format!(",{late}")), "{line}");
    }

    let reset = teacher.post("/lab/class/reset", &format!("csrf={csrf}&sure=yes")).await;
    assert_eq!(reset.status, 303);
    assert_eq!(votes_of(&teacher.get(&presented).await), ["?"; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_lesson_is_shared_until_it_was_seen() {
    let shop = class_shop().await;
    let (one, other) = (Visitor::new(&shop), Visitor::new(&shop));
    let run = async |visitor: &Visitor, path: &str, form: &str| {
        let page = visitor.post(path, form).await;
        assert_eq!(page.status, 303, "{}", page.words());
        page.location
    };
    let first = run(&one, RUNS, "guess=0").await;
    assert_eq!(run(&one, RUNS, "").await, first, "a second click");
    assert_eq!(run(&other, RUNS, "guess=1").await, first);
    assert_ne!(run(&other, RUNS, "buyers=8").await, first, "other settings");
    assert_ne!(run(&other, "/lab/lessons/fence/runs", "").await, first, "another lesson");
    assert_ne!(run(&other, "/lab/runs", "strategies=none").await, first, "a load");
    assert_eq!(shop.number("select count(*) from lab_runs").await, 4);

    end_runs(&shop).await;
    assert_eq!(run(&other, RUNS, "").await, first, "others have just started it");
    one.get(&first).await;
    let second = run(&one, RUNS, "").await;
    assert_ne!(second, first, "whoever has seen it runs it again");
    assert_eq!(run(&other, RUNS, "").await, second, "the one that goes on");

    end_runs(&shop).await;
    let age = "update lab_runs set created_at = created_at - interval '11 s'";
    sqlx::query(age).execute(&shop.pool).await.unwrap();
    assert_ne!(run(&other, RUNS, "").await, second, "too late to have been started together");
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_after_the_result_does_not_count() {
    let shop = class_shop().await;
    let late = Visitor::new(&shop);
    let run = late.post(RUNS, "").await.location;
    end_runs(&shop).await;
    late.get(&run).await;

    let page = late.get(LESSON).await.text;
    let question = page.split("<fieldset class=\"question\"").nth(1).unwrap();
    assert!(question.split('>').next().unwrap().contains(" disabled"), "{question}");
    assert_eq!(late.post(ANSWERS, "guess=2").await.status, 303);
    assert_eq!(shop.number(ANSWERED).await, 0);
}

/// Stores an answer of one visitor and a run of a lesson that has its result.
pub async fn show_result(shop: &TestShop, lesson: &str) -> String {
    let answer = "insert into lab_progress (visitor, activity, guess, answered_at)
                  values (gen_random_uuid(), $1, 3, now())";
    sqlx::query(answer).bind(lesson).execute(&shop.pool).await.unwrap();
    let mut run = LabRun { id: Uuid::now_v7(), ..oversold() };
    run.request.lesson = Some(lesson.to_owned());
    assert!(store::import(&shop.pool.clone().into(), &run).await.unwrap());
    format!("/lab/runs/{}?present", run.id)
}

/// On a projector nobody scrolls: the question, its answers, the votes and the button that runs the
/// lesson are on one screen.
#[tokio::test(flavor = "multi_thread")]
async fn presented_lessons_fit_a_projector() {
    let shop = class_shop().await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.resize(1280, 720).await;
    let mut too_large = Vec::new();
    for language in Language::ALL {
        browser.go(&format!("/language/{}?next=/lab", language.tag())).await;
        for lesson in LESSONS {
            browser.go(&format!("/lab/lessons/{}?present", lesson.name)).await;
            let bottom = bottom_of(&browser, "#run").await;
            let width = browser.width().await;
            let votes = bottom_of(&browser, "#votes .bars").await;
            // A result, in the language with the longer answers: the picture, what the step says,
            // and the verdict with the votes.
            if language == Language::English {
                class::show_votes(&shop.pool.clone().into(), lesson.name).await.unwrap();
                browser.go(&show_result(&shop, lesson.name).await).await;
                browser.find(".player .swimlane[role]").await;
                let result = bottom_of(&browser, "#verdict").await;
                let step = bottom_of(&browser, ".player .beside").await;
                let bars = bottom_of(&browser, "#verdict .guesses").await;
                if result.max(bars) > 720.0 || step > 720.0 {
                    too_large.push((lesson.name, "result", result, step, 0));
                }
            }
            if bottom > 720.0 || votes > 720.0 || width > 1280 {
                too_large.push((lesson.name, language.tag(), bottom, votes, width));
            }
        }
    }
    assert!(too_large.is_empty(), "{too_large:?}");
    browser.close().await;
}
