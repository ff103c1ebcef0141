//! The page of a run: what its load shows first, why an answer is wrong, and its texts in the
//! language of the page.

use std::mem;

use holdfast_base::messages::Message;
use holdfast_lab::run::{LabRun, LabRunState};
use holdfast_lab::store;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::lab::{ID, oversold, register_runner, with_run};
use crate::visitor::{Page, Visitor};

#[tokio::test(flavor = "multi_thread")]
async fn run_page_says_why_an_answer_is_wrong() {
    let (mut shown, mut not_shown) = (oversold(), oversold());
    for (run, claim_shown) in [(&mut shown, true), (&mut not_shown, false)] {
        run.id = uuid::Uuid::now_v7();
        run.outcome.claim_shown = Some(claim_shown);
    }
    let shop = with_run(&shown).await;
    register_runner(&shop).await;
    assert!(store::import(&shop.pool.clone().into(), &not_shown).await.unwrap());
    let read = async |visitor: &Visitor, run: &LabRun, language: &str| {
        visitor.get_in(language, &format!("/lab/runs/{}", run.id)).await.words()
    };
    let answer = async |guess: &str| {
        let visitor = Visitor::new(&shop);
        let answered = visitor.post("/lab/lessons/lost-update/runs", guess).await;
        assert_eq!(answered.status, 303, "{}", answered.words());
        visitor
    };

    for (guess, english, chinese) in [
        ("guess=1", "nothing compares the stock they read", "写入时，没有谁核对库存"),
        ("guess=2", "so it never writes less than zero", "所以写回的库存不会小于零"),
    ] {
        let visitor = answer(guess).await;
        let wrong = read(&visitor, &shown, "en").await;
        let right = "The answer is: more than 100, and the stock never goes below zero";
        for text in ["Not quite. Your answer: ", english, right] {
            assert!(wrong.contains(text), "{text}: {wrong}");
        }
        let wrong = read(&visitor, &shown, "zh").await;
        let right = "正确答案：超过 100 件，但库存从不为负";
        for text in ["不太对。", chinese, right] {
            assert!(wrong.contains(text), "{text}: {wrong}");
        }
        let unjudged = read(&visitor, &not_shown, "en").await;
        assert!(unjudged.contains("so your answer is not judged."), "{unjudged}");
        let usual = "What happens with the lesson’s own settings";
        assert!(unjudged.contains(usual), "{unjudged}");
        assert!(!read(&visitor, &shown, "en").await.contains(usual));
        assert!(!unjudged.contains("Not quite.") && !unjudged.contains(english), "{unjudged}");
    }
    let right = read(&answer("guess=3").await, &shown, "en").await;
    assert!(right.contains("never goes below zero · That is what happened."), "{right}");
    assert!(!right.contains("Not quite.") && !right.contains("The answer is:"), "{right}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_follows_language_of_the_page() {
    let mut run = oversold();
    let resumed = Message::new("run-lost-update-step-3").with("sold", 2).with("stock", 9);
    run.outcome.steps = vec![resumed.clone().into(), Message::new("run-of-a-later-version").into()];
    run.outcome.verdict = Some(resumed.into());
    run.outcome.lanes[0].label = Message::new("run-label-order").with("number", 16).into();
    let shop = with_run(&run).await;
    let visitor = Visitor::new(&shop);
    let read = async |path: &str, language: &str| {
        let request = visitor.page_request(path).header("Accept-Language", language);
        Page::read(request.send().await.unwrap()).await.text
    };
    let path = format!("/lab/runs/{ID}");
    for path in [path.clone(), format!("{path}/file"), "/lab/runs".to_owned()] {
        let chinese = read(&path, "zh-CN").await;
        let (shown, _) = chinese.split_once("id=\"holdfast-run\"").unwrap_or((&chinese, ""));
        let rest = chinese.split_once("</script>").map_or("", |(_, rest)| rest);
        assert!(rest.contains("A 恢复，写入 9。售出：2。库存：9。"), "{path}: {rest}");
        assert!(!shown.contains("A resumes") && !rest.contains("A resumes"), "{path}: {rest}");
        assert!(path == "/lab/runs" || rest.contains("订单 16"), "{path}: {rest}");
        assert!(read(&path, "en").await.contains("A resumes and writes 9."), "{path}");
    }
    // A message that this version does not know is shown by its name.
    assert!(read(&path, "zh").await.contains("run-of-a-later-version"));
    let alice = shop.sign_in("alice").await;
    let api = alice.reads(&format!("/api/lab/runs/{ID}")).await;
    let english = "A resumes and writes 9. Sold: 2. Stock: 9.";
    assert_eq!((&api["said"][0], &api["verdict"]), (&json!(english), &json!(english)));
    assert_eq!(api["lanes"][0]["label"], "order 16");
}

/// While a load goes on, its page shows the scene before it, which no frame has.
#[tokio::test(flavor = "multi_thread")]
async fn load_begins_with_the_picture_of_the_first_scene() {
    let mut run = oversold();
    run.state = LabRunState::Running;
    let outcome = mem::take(&mut run.outcome);
    let shop = with_run(&run).await;
    let path = format!("/lab/runs/{ID}");
    let visitor = Visitor::new(&shop);
    assert_eq!(visitor.get(&format!("{path}/picture")).await.status, 404);

    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go(&path).await;
    browser.until_text("#state", "Running").await;
    let lanes = &outcome.lanes[..2];
    let progress = json!({ "said": [], "arms": 2, "has_scene": true, "lanes": lanes });
    let show = "update lab_runs set progress = $1, frame = frame + 1";
    sqlx::query(show).bind(&progress).execute(&shop.pool).await.unwrap();
    browser.until_text("#scene .step-description", "Step").await;
    assert!(!browser.find("#figures").await.is_displayed().await.unwrap());
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;

    // Without a script it comes with the page.
    let page = visitor.get(&path).await.text;
    assert!(page.contains("<div id=\"scene\"><div class=\"track\""), "{page}");
    let run = visitor.get(&format!("/api/lab/runs/{ID}")).await.text;
    let run: Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["progress"]["has_scene"], true);
    assert_eq!(run["progress"].get("lanes"), None);
}
