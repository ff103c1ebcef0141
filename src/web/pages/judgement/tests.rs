//! Tests of a rendered judgement.

use super::*;

const FIXTURE: &str = include_str!("../../../../tests/pages/judgement.json");

fn judgement() -> Judgement {
    serde_json::from_str(FIXTURE).unwrap()
}

fn render(judgement: &Judgement, language: Language) -> String {
    saved_page_in(judgement, language).unwrap()
}

/// Returns the row of a fault in a table.
fn row<'a>(page: &'a str, table: &str, fault: &str) -> &'a str {
    let table = page.split(&format!("<h2 id=\"{table}\">")).nth(1).unwrap();
    let table = table.split("</table>").next().unwrap();
    let row = table.split("<tr>").find(|row| row.contains(&format!(">{fault}<"))).unwrap();
    row.split("</tr>").next().unwrap()
}

#[test]
fn every_fault_and_violation_is_shown() {
    let judgement = judgement();
    for language in Language::ALL {
        let page = render(&judgement, language);
        for fault in &judgement.faults {
            let safety = row(&page, "safety-title", &fault.name);
            let is_loss = fault.ran && fault.lost_updates > 0;
            assert_eq!(safety.contains("class=\"off\""), is_loss, "{safety}");
            let word = if is_loss { "judge-result-lost" } else { "judge-result-safe" };
            assert_eq!(safety.contains(&language.text(word)), fault.ran, "{safety}");
            if let Some(why) = &fault.why_not {
                assert!(safety.contains(why), "{safety}");
            }
            for violation in &fault.violations {
                assert!(page.contains(&violation.text), "{}", violation.text);
                let name = language.text(&format!("judge-kind-{}", violation.kind));
                assert!(page.contains(&name), "{name}");
            }
        }
        let drawn = judgement.faults.iter().flat_map(|fault| &fault.violations);
        let drawn = drawn.filter(|violation| !violation.events.is_empty()).count();
        assert_eq!(page.matches("role=\"img\"").count(), drawn);
    }
}

#[test]
fn verdict_counts_losses_and_faults() {
    let mut judgement = judgement();
    let page = render(&judgement, Language::English);
    for text in [
        "7 lost updates under 3 of 9 faults",
        "If each write also demands the fence: no lost update.",
        "2 faults did not run.",
        "fencing tokens: yes",
        "2026-11-25 04:12:09 UTC",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("class=\"saved-verdict loss\""));
    let cost = row(&page, "cost-title", "redis-slow");
    let cells = [">3,205<", ">7,411<", ">99<", ">31<", ">3.4<", ">0.98<", ">1.9<"];
    assert!(cells.iter().all(|cell| cost.contains(cell)), "{cost}");

    // A key that also remains without a fault is none that was left behind.
    let slow_commit = judgement.faults.iter_mut().find(|fault| fault.leftover_keys == 1).unwrap();
    assert!(!row(&page, "cost-title", &slow_commit.name).contains("found"));
    let events = Vec::new();
    let kind = "leftover-key".to_owned();
    slow_commit.violations.push(Violation { kind, text: "1 key is left".to_owned(), events });
    let name = slow_commit.name.clone();
    let page = render(&judgement, Language::English);
    assert!(row(&page, "cost-title", &name).contains("found"));

    judgement.faults.retain(|fault| fault.violations.is_empty());
    let page = render(&judgement, Language::English);
    assert!(page.contains("No lost update under 3 faults"), "{page}");
    assert!(page.contains("None was found.") && !page.contains("<svg"));
    assert!(!page.contains("saved-verdict loss") && !page.contains("class=\"off\""));

    judgement.faults.truncate(1);
    let page = render(&judgement, Language::English);
    assert!(page.contains("No lost update without a fault"), "{page}");
    judgement.faults[0].lost_updates = 1_234;
    let page = render(&judgement, Language::English);
    assert!(page.contains("1,234 lost updates, even without a fault"), "{page}");

    judgement.faults.clear();
    assert!(render(&judgement, Language::English).contains("Nothing was judged"));
}

#[test]
fn loss_with_fence_is_red() {
    let mut judgement = judgement();
    let fault = &mut judgement.faults[0];
    fault.with_fence.as_mut().unwrap().lost_updates = 2;
    let (kind, text) = ("lost-with-fence".to_owned(), "2 updates are lost".to_owned());
    fault.violations.push(Violation { kind, text, events: Vec::new() });
    let page = render(&judgement, Language::English);
    assert!(page.contains("demands the fence: 2 lost updates."));
    let none = row(&page, "safety-title", "none");
    assert!(none.contains("off\">2<"), "{none}");

    judgement.adapter.fencing = false;
    judgement.faults.iter_mut().for_each(|fault| fault.with_fence = None);
    let page = render(&judgement, Language::English);
    assert!(!page.contains("demands the fence") && !page.contains("fences not above the last<"));
}

#[test]
fn texts_of_file_are_escaped() {
    let mut judgement = judgement();
    let attack = "</style><script>alert(1)</script>\"'";
    judgement.adapter.name = attack.to_owned();
    judgement.started_at = attack.to_owned();
    for fault in &mut judgement.faults {
        fault.name = attack.to_owned();
        fault.why_not = fault.why_not.as_ref().map(|_| attack.to_owned());
        for violation in &mut fault.violations {
            (violation.kind, violation.text) = (attack.to_owned(), attack.to_owned());
            violation.events.iter_mut().for_each(|event| event.event = attack.to_owned());
        }
    }
    let page = render(&judgement, Language::English);
    assert!(!page.contains("<script") && !page.contains("alert(1)</"), "{page}");
    assert_eq!(page.matches("</style>").count(), 1);
}
