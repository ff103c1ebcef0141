//! Slow motion: which scene plays, what each sign says, and that a drawing is legible, measured in
//! a real browser.

use holdfast_lab::run::LabRun;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::lab::{ID, oversold, with_run};
use crate::visitor::Visitor;

/// A lane of a scene; each of its events is `NAME [VALUE] [fence FENCE]`, 3 ms apart. Id 0 is
/// somebody who sends no request.
fn lane(
    scene: &str,
    id: u8,
    label: &str,
    from_ms: u64,
    events: &[&str],
    end: Option<u16>,
) -> Value {
    let event = |(at, text): (usize, &&str)| {
        let mut parts = text.split(' ');
        let name = parts.next().unwrap();
        let numbers: Vec<i64> = parts.filter_map(|part| part.parse().ok()).collect();
        let key = if name == "stopped" { "" } else { "{sku:lab-9}" };
        json!({
            "t_us": from_ms * 1_000 + 3_000 * (at as u64 + 1), "event": name, "key": key,
            "value": numbers.first(), "fence": numbers.get(1),
        })
    };
    let over = from_ms * 1_000 + 3_000 * (events.len() as u64 + 1);
    json!({
        "request_id": format!("00000000-0000-0000-0000-0000000000{id:02}"), "label": label,
        "replica": if id > 0 { "18500" } else { "" }, "arm": null, "scene": scene,
        "strategy": "check-then-del", "sent_us": from_ms * 1_000, "answered_us": end.map(|_| over),
        "status": end, "problem": (end == Some(503)).then_some("lock-lost"),
        "events": events.iter().enumerate().map(event).collect::<Vec<_>>(),
    })
}

/// Returns a run whose scenes have every kind of event.
fn every_sign() -> LabRun {
    let mut run = oversold();
    let lanes = json!([
        lane("more", 5, "A, killed", 900, &["wait", "held", "read 10", "killed"], None),
        lane("more", 6, "B, retry", 990, &["replayed"], Some(201)),
        lane(
            "pair",
            1,
            "A",
            0,
            &[
                "wait",
                "expire",
                "held 0 1",
                "renewed",
                "read 10 1",
                "paused",
                "stopped",
                "expired 1500",
                "continued",
                "resumed",
                "write 9 1",
                "commit",
                "committed",
                "delete",
                "foreign",
                "release",
            ],
            Some(201)
        ),
        lane(
            "pair",
            2,
            "B",
            25,
            &["wait", "held 0 2", "read 10 2", "write 9 2", "committed", "lost", "release",],
            Some(503)
        ),
        lane(
            "pair",
            3,
            "C",
            30,
            &["wait", "tries", "busy", "held 0 3", "stale 3 1", "refused 9 1", "left", "hung",],
            None
        ),
        lane("pair", 0, "Redis", 70, &["cut", "promoted", "flushed", "removed"], None),
    ]);
    let mut lanes: Vec<Value> = lanes.as_array().unwrap().clone();
    // Its name in files of before.
    lanes[4]["events"][7]["event"] = json!("hung up");
    run.outcome.lanes.extend(lanes.into_iter().map(|lane| serde_json::from_value(lane).unwrap()));
    run
}

/// The lesson's question names the scene that opens, with its lanes in the order of the text.
#[tokio::test(flavor = "multi_thread")]
async fn asked_scene_plays_first() {
    let run = every_sign();
    let shop = with_run(&run).await;
    let visitor = Visitor::new(&shop);
    let lesson = visitor.get("/lab/lessons/lost-update").await;
    assert!(lesson.text.contains("<fieldset class=\"question\" data-scene=\"pair\""));

    for path in [format!("/lab/runs/{ID}"), format!("/lab/runs/{ID}/file")] {
        let page = visitor.get(&path).await;
        let player = page.text.split("class=\"player\"").nth(1).unwrap();
        let player = player.split("</section>").next().unwrap();
        assert!(player.contains("data-scene=\"pair\""), "{path}");
        let names: Vec<&str> = player.split("class=\"name\"").skip(1).collect();
        let names = names.iter().map(|rest| rest.split(['>', '<']).nth(1).unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["A", "B", "C", "Redis"], "{path}");
        assert!(page.text.contains("<details class=\"crowd\" data-scene=\"more\">"), "{path}");
        for told in [
            "A</bdi> has lost the lock: its lease of 1,500 ms is over",
            "A</bdi> deletes C’s lock",
            "C</bdi> has lost the lock: its key is gone",
            "B</bdi> writes 9, fence 2",
            "B</bdi> is answered 503: The lock was lost",
            "C</bdi> comes too late: its fence 1 is below the row’s 3",
            "C</bdi> has its write rejected: nothing is stored",
            "Redis</bdi> loses all keys and counters (FLUSHALL)",
        ] {
            assert!(player.contains(told), "{told}: {player}");
        }
        for hidden in ["hung up", "releases the lock", "(sku"] {
            assert!(!player.contains(hidden), "{hidden}: {path}");
        }
    }
}

/// Runs a script in the browser until it returns no problem.
async fn measure(browser: &Browser) -> (i64, Value) {
    let script = include_str!("collisions.js");
    let found = browser.driver.execute(script, vec![]).await.unwrap();
    let found = found.json();
    (found[0].as_i64().unwrap(), found[1].clone())
}

/// What is to come is as legible as a note, and every text has the page's typeface.
const LEGIBLE: &str = "
    const root = getComputedStyle(document.documentElement);
    const paper = root.getPropertyValue('--paper');
    const probe = document.createElement('i');
    probe.style.color = paper;
    document.body.append(probe);
    const light = (color) => {
      const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
      const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
      const [r, g, b] = parts.map(linear);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = light(getComputedStyle(probe).color);
    const contrast = (color) => {
      const both = [light(color), ground].sort((a, b) => a - b);
      return (both[1] + 0.05) / (both[0] + 0.05);
    };
    const slider = document.querySelector('.player input[type=range]');
    slider.value = 1;
    slider.dispatchEvent(new Event('input'));
    const font = getComputedStyle(document.body).fontFamily;
    const problems = [];
    for (const text of document.querySelectorAll('.player .later text')) {
      const style = getComputedStyle(text);
      const opacity = getComputedStyle(text.closest('g')).opacity;
      const isPale = opacity !== '1' || contrast(style.fill) < 4.5;
      if (isPale) problems.push(`pale: ${text.textContent} ${style.fill} ${opacity}`);
    }
    const kinds = ['text', 'button', 'select', 'label', 'li', 'p', 'span'];
    for (const text of document.querySelectorAll(`.player :is(${kinds})`)) {
      const isOther = getComputedStyle(text).fontFamily !== font;
      if (isOther) problems.push(`typeface: ${text.textContent}`);
    }
    probe.remove();
    return [document.querySelectorAll('.player .later text').length, problems];";

/// In both languages, on a phone and on a large screen, at every step: no text of a drawing covers
/// another one or leaves the drawing, and no playhead cuts one.
#[tokio::test(flavor = "multi_thread")]
async fn no_label_collides() {
    let shop = with_run(&every_sign()).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    for language in ["en", "zh"] {
        browser.go(&format!("/language/{language}?next=/lab/runs/{ID}")).await;
        browser.until_path("/lab/runs/").await;
        // Without a playback; the tabs of the details are shown, each scene is opened.
        let still =
            json!({ "features": [{ "name": "prefers-reduced-motion", "value": "reduce" }] });
        browser.devtools("Emulation.setEmulatedMedia", still).await;
        browser.find(".player .swimlane[role]").await;
        let open =
            "document.querySelectorAll('.tabs > *').forEach((panel) => { panel.hidden = false; });
            document.querySelectorAll('details').forEach((details) => { details.open = true; });";
        browser.driver.execute(open, vec![]).await.unwrap();
        browser.find("details.crowd[data-scene=more] .swimlane[role]").await;

        for width in [320, 390, 1280] {
            let screen =
                json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
            browser.devtools("Emulation.setDeviceMetricsOverride", screen).await;
            let (texts, problems) = measure(&browser).await;
            assert_eq!(problems, json!([]), "{language} at {width}");
            assert!(texts > 500, "{texts} texts were measured");
        }
        for scheme in ["light", "dark"] {
            let media =
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.devtools("Emulation.setEmulatedMedia", media).await;
            let found = browser.driver.execute(LEGIBLE, vec![]).await.unwrap();
            let found = found.json();
            assert_eq!(found[1], json!([]), "{language} in {scheme}");
            assert!(found[0].as_i64().unwrap() > 20, "{found}");
        }
    }
    assert!(!include_str!("../../static/lab.js").contains("sans-serif"), "a chart's typeface");
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}

/// Every sign of an event that a lesson is about has its words in the legend.
#[tokio::test(flavor = "multi_thread")]
async fn legend_names_every_sign() {
    let shop = with_run(&every_sign()).await;
    let page = Visitor::new(&shop).get(&format!("/lab/runs/{ID}")).await;
    for (name, words) in [
        ("expired", "lease over"),
        ("renewed", "lease renewed"),
        ("foreign", "deletes another holder’s lock"),
        ("gone", "lock gone"),
        ("left", "lock stays"),
        ("lost", "lock lost"),
        ("refused", "write rejected"),
        ("stale", "fence too low"),
        ("stopped", "process stopped"),
        ("killed", "killed"),
        ("disconnected", "response lost"),
        ("replayed", "stored response"),
        ("flushed", "all keys lost"),
        ("cut", "link cut"),
        ("promoted", "promoted"),
        ("removed", "deleted by hand"),
        ("busy", "no lock"),
    ] {
        let mark = format!("<use class=\"mark {name}\" href=");
        let sign = format!("</svg>{words}</li>");
        let mut marks = page.text.split(&mark).skip(1);
        let in_legend = marks.any(|rest| {
            let end = rest.find("</svg>").unwrap_or_default();
            rest[end..].starts_with(&sign)
        });
        assert!(in_legend, "{name}");
    }
    for bar in ["unsafe", "behind", "paused"] {
        assert!(page.text.contains(&format!("<li class=\"{bar}\">")), "{bar}");
    }
}
