//! The page of a judged service: its verdict, its texts in both languages, and what it masks.

use super::super::tests::shown_in;
use super::*;

const FIXTURE: &str = include_str!("../../../../../tests/pages/service.json");

fn judgement() -> ServiceJudgement {
    serde_json::from_str(FIXTURE).unwrap()
}

fn render(judgement: &ServiceJudgement, language: Language) -> String {
    shown_in(&save(judgement, language).unwrap())
}

/// Returns the cells of a pass, without their marks.
fn row(page: &str, pass: &str) -> String {
    let row = page.split("<tr>").find(|row| row.contains(&format!(">{pass}<"))).unwrap();
    row.split("</tr>").next().unwrap().replace("<span aria-hidden=\"true\">▲</span> ", "")
}

#[test]
fn verdict_names_what_was_found() {
    let mut judgement = judgement();
    // As anybody's file may have it.
    judgement.sound = true;
    let page = render(&judgement, Language::English);
    for text in [
        "saved-verdict loss",
        "Not sound: oversold, doubled",
        "oversold under gate, retry",
        "2 instances · seed 7",
        "did not run: <span>the buyer is a program",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let gate = row(&page, "gate");
    for cell in ["off\">11<", ">16<", ">1,566<", ">1,516<", ">3/10<"] {
        assert!(gate.contains(cell), "{cell}: {gate}");
    }
    assert!(!row(&page, "control").contains("off"));

    judgement.passes.retain(|pass| pass.lost_in == 0);
    judgement.sound = false;
    let page = render(&judgement, Language::English);
    let verdict = "Sound: nothing oversold, lost or doubled, and no drift, in 88 orders under \
                   control, none";
    assert!(page.contains(verdict) && !page.contains("The two requests"), "{page}");
    assert!(!page.contains(" loss\""), "{page}");

    // Nor is a figure bounded.
    judgement.passes[0].figures.attempts = u64::MAX;
    let page = render(&judgement, Language::English);
    assert!(page.contains("in 18,446,744,073,709,551,615 orders"), "{page}");

    judgement.passes.retain(|pass| pass.name == "control" || !pass.ran);
    assert!(render(&judgement, Language::English).contains("Not decided"));
}

#[test]
fn what_the_table_does_not_say_stands_below_it() {
    let mut judgement = judgement();
    let page = render(&judgement, Language::English);
    assert!(
        page.contains("retry: an answer that is neither sold nor sold out: <code>500"),
        "{page}"
    );
    assert!(!page.contains("by_key") && !page.contains("two requests alone did not"), "{page}");

    let retry = judgement.passes.iter_mut().find(|pass| pass.name == "retry").unwrap();
    retry.evidence.clear();
    (retry.figures.errors, retry.figures.unknown) = (0, 1);
    let page = render(&judgement, Language::English);
    assert!(page.contains("retry: an order without an answer: <code>500"), "{page}");
    assert!(page.contains("retry: two requests alone did not show"), "{page}");

    let retry = judgement.passes.iter_mut().find(|pass| pass.name == "retry").unwrap();
    retry.figures.doubled = 0;
    retry.figures.by_count = true;
    let page = render(&judgement, Language::English);
    assert!(page.contains("there is no <code>[books] by_key</code>"), "{page}");
}

/// The figures of schedules are those of two orders.
#[test]
fn schedules_have_no_figures_of_chance_and_a_replay_says_so() {
    let mut judgement = judgement();
    let page = render(&judgement, Language::English);
    let cells = ">8</td><td class=\"number\">5</td><td class=\"number\">5</td>";
    assert!(row(&page, "control").contains(cells), "the books: {page}");

    let control = &mut judgement.passes[0];
    "interleavings".clone_into(&mut control.name);
    let page = render(&judgement, Language::English);
    let dashes = ">5</td>".to_owned() + &"<td class=\"number\">-</td>".repeat(4);
    assert!(row(&page, "interleavings").contains(&dashes), "{page}");
    assert!(!page.contains("A recorded schedule again"), "{page}");

    assert!(!page.contains("found by schedule"), "{page}");
    (judgement.passes[0].lost_in, judgement.passes[0].runs) = (1, 3);
    let page = render(&judgement, Language::English);
    assert!(page.contains("<p class=\"hint\">interleavings: found by schedule 3.</p>"), "{page}");

    judgement.passes[0].untried = std::num::NonZeroUsize::new(8);
    let page = render(&judgement, Language::English);
    let untried = "interleavings: 8 schedules of at most two switches were not tried: \
                   <code>--budget</code> gives more time";
    assert!(page.contains(untried), "{page}");

    judgement.passes[0].replay = true;
    let page = render(&judgement, Language::English);
    assert!(row(&page, "replay").contains("title=\"interleavings\""), "{page}");
    assert!(page.contains("<dd>A recorded schedule again"), "{page}");
    assert!(!page.contains("found by schedule"), "{page}");
}

#[test]
fn statement_that_waits_is_answered_later() {
    let judgement = judgement();
    let page = ServiceView { judgement: &judgement, language: Language::English };
    let evidence = &judgement.passes[2].evidence[0];
    assert_eq!(page.request_names(evidence), ["buyer 1, instance 2", "buyer 2, instance 1"]);
    let steps = page.steps(evidence);
    let times: Vec<&str> = steps.iter().map(|step| step.at.as_str()).collect();
    assert_eq!(times, ["5.9", "6.8", "6.9", "7.9", "1,519.2", "1,524.7", "1,525.2", "1,528.6"]);

    // The second request reads while the update of the first one waits.
    let [second, first] = &steps[2].cells[..] else { panic!("{:?}", steps[2]) };
    assert!(first.waits && first.request.is_none(), "{first:?}");
    assert_eq!((second.note.as_str(), second.result.as_deref()), ("0.6 ms", Some("stock = 1")));
    let [_, sent] = &steps[1].cells[..] else { panic!("{:?}", steps[1]) };
    assert!(sent.waits && sent.sql.is_some() && sent.result.is_none(), "{sent:?}");
    assert!(sent.is_decisive && !steps[4].cells[1].is_decisive && !steps[5].cells[1].is_decisive);
    let [_, answered] = &steps[4].cells[..] else { panic!("{:?}", steps[4]) };
    assert_eq!(answered.note, "answered after 1,512.4 ms");
    assert_eq!((&answered.sql, answered.result.as_deref()), (&None, Some("UPDATE 1")));
    assert!(!steps[5].cells[1].waits && steps[5].cells[0].waits);

    // Also a short time, if another statement was sent before the answer.
    let steps = page.steps(&judgement.passes[3].evidence[0]);
    let times: Vec<&str> = steps.iter().map(|step| step.at.as_str()).collect();
    assert_eq!(times, ["1.1", "1.2", "1.4", "2.0", "2.2", "3.2", "4.0", "4.1", "4.9"]);
    assert_eq!(steps[2].cells[0].note, "answered after 0.3 ms");
}

#[test]
fn page_is_in_each_language() {
    let mut judgement = judgement();
    judgement.passes[2].evidence[0].left_out_names = vec!["BEGIN".to_owned()];
    let english = render(&judgement, Language::English);
    let chinese = render(&judgement, Language::Chinese);
    for (page, texts) in [
        (
            &english,
            [
                "Check, then relative decrement</b> <span lang=\"en\">both requests found",
                "The judge held the item’s row meanwhile.",
                "(left out: BEGIN)",
                "The mistake as a lesson: Check, then decrement",
                "no answer</code>",
                "aria-label=\"decisive\">▶</span> <code class=\"sql\">update products",
            ],
        ),
        (
            &chinese,
            [
                "先检查，再做相对扣减</b><span lang=\"zh\">两个请求",
                "判定程序锁住商品所在的行",
                "（省略：BEGIN）",
                "演示这个错误的课程：先检查，再扣减",
                "没有响应</code>",
                "aria-label=\"起决定作用\">▶</span> <code class=\"sql\">update products",
            ],
        ),
    ] {
        for text in texts {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(page.contains("email = &#39;…&#39;"), "a masked value: {page}");
        assert!(!page.contains("Unknown localization key") && !page.contains("<script"));
    }
    assert!(row(&chinese, "响应丢失").contains("买家是一个程序"), "{chinese}");
    assert!(!chinese.contains("both requests"), "{chinese}");

    for (language, full_stop) in [(Language::English, "."), (Language::Chinese, "。")] {
        let view = ServiceView { judgement: &judgement, language };
        let (sentence, _) = view.sentence(&judgement.passes[2].evidence[0]);
        assert!(sentence.ends_with(full_stop), "{sentence}");
    }

    // Of an earlier or a later version.
    let evidence = &mut judgement.passes[2].evidence[0];
    evidence.message = None;
    evidence.under = "later".to_owned();
    let page = render(&judgement, Language::Chinese);
    assert!(page.contains("</b><span lang=\"en\">both requests found"), "{page}");
    assert!(page.contains("在“later”下发送"), "{page}");
}

#[test]
fn texts_of_file_are_escaped() {
    let mut judgement = judgement();
    assert!(render(&judgement, Language::English).contains("id = &#39;&#60;b&#62;tea&#39;"));
    let attack = "</style><script>alert(1)</script>\"'";
    judgement.service.name = attack.to_owned();
    judgement.started_at = attack.to_owned();
    for pass in &mut judgement.passes {
        pass.name = attack.to_owned();
        pass.why_not = pass.why_not_message.take().map(|_| attack.to_owned());
        pass.figures.error = Some(attack.to_owned());
        for evidence in &mut pass.evidence {
            evidence.message = None;
            evidence.pattern = Pattern::LeaseOutlived;
            attack.clone_into(&mut evidence.summary);
            attack.clone_into(&mut evidence.under);
            for statement in &mut evidence.statements {
                attack.clone_into(&mut statement.sql);
                attack.clone_into(&mut statement.result);
            }
        }
    }
    let page = save(&judgement, Language::English).unwrap();
    assert_eq!(page.matches("<script").count(), 1, "the data");
    assert!(!page.contains("alert(1)</"), "{page}");
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("<code>docs/FENCES.md</code> in the repository"), "{page}");
}

/// A sentence begins with the name that stands before it, and a lesson that is named exists.
#[test]
fn mistakes_have_their_texts_and_lessons() {
    for language in Language::ALL {
        for pattern in Pattern::VARIANTS {
            let title = pattern.title(language);
            let sentence = format!("service-found-{}", pattern.name());
            let variables = [("sold", 2_i64.into()), ("opening", 1_i64.into())];
            let sentence = language.text_with(&sentence, &variables);
            let begins = sentence.starts_with(&format!("{title}{}", language.colon()));
            assert!(begins || *pattern == Pattern::Unknown, "{title}: {sentence}");
            for text in [title, pattern.cure(language)] {
                assert!(!text.starts_with("Unknown localization key"), "{text}");
            }
        }
    }
    let further = Pattern::VARIANTS.iter().flat_map(|pattern| further(*pattern));
    for (_, name) in further.filter(|(message, _)| *message != RECIPE) {
        assert!(lessons::named(name).is_some(), "{name}");
    }
}
