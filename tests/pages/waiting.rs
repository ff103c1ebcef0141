//! The lesson about waiting: requests that ask again and again, beside a queue.

use holdfast_lab::run::LabRun;

use crate::lab::{oversold, with_run};
use crate::slow_motion::lane;
use crate::visitor::Visitor;

const WAITING: &str = "01a2006d-5253-7170-b37f-df609d0c5d32";

/// Returns a run of the lesson about waiting: B asks again while A has the lock, and waits for the
/// handoff in another scene.
fn waiting() -> LabRun {
    let mut run = oversold();
    run.id = WAITING.parse().unwrap();
    run.request.lesson = Some("waiting".to_owned());
    run.outcome.arms.clear();
    let a =
        ["wait", "held", "read 10", "paused", "+120 resumed", "write 9", "committed", "release"];
    let b = ["wait", "+50 tries", "+50 tries", "+50 held", "read 9", "write 8", "committed"];
    let woken = ["wait", "+140 held", "read 9", "write 8", "committed"];
    let lanes = [
        lane("retry", 1, "A", 0, &a, Some(201)),
        lane("retry", 2, "B", 1, &[&b[..], &["release"]].concat(), Some(201)),
        lane("queue", 3, "A", 500, &a, Some(201)),
        lane("queue", 4, "B", 501, &[&woken[..], &["release"]].concat(), Some(201)),
    ];
    run.outcome.lanes = lanes.map(|lane| serde_json::from_value(lane).unwrap()).into();
    run
}

/// Retries are seen beside a queue, in which nobody asks in vain.
#[tokio::test(flavor = "multi_thread")]
async fn retries_are_shown_beside_a_queue() {
    let shop = with_run(&waiting()).await;
    let visitor = Visitor::new(&shop);
    for path in [format!("/lab/runs/{WAITING}"), format!("/lab/runs/{WAITING}/file")] {
        let page = visitor.get(&path).await.text;
        let (above, below) = page.split_once("class=\"beside-scene\"").unwrap();
        let above = above.split("class=\"player\"").nth(1).unwrap();
        let below = below.split("</section>").next().unwrap();
        assert_eq!(above.matches("asks again: the lock is taken").count(), 2, "{path}");
        let marks = |drawing: &str| drawing.matches("class=\"mark tries\"").count();
        // Two attempts, and the legend.
        assert_eq!((marks(above), marks(below)), (3, 0), "{path}");
        assert!(
            below.contains("Here the last one got the lock 3 ms after A’s release."),
            "{below}"
        );
    }
    let slower = visitor.get(&format!("/lab/runs/{WAITING}/picture?retry_ms=200")).await;
    let faster = visitor.get(&format!("/lab/runs/{WAITING}/picture?retry_ms=5")).await;
    let late = |text: &str| {
        let (_, rest) = text.split_once("The last one gets the lock ").unwrap();
        rest.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert!(late(&slower.text) > 40 && late(&faster.text) <= 5, "{}", slower.text);
}
