//! Tests of the drawings: their labels, bars and marks.

use super::*;
use crate::{Activity, Detail, TimelineLane, Value};
use strum::IntoEnumIterator as _;

fn event(at_us: u64, lane: usize, kind: EventKind, value: i64) -> TimelineEvent {
    let detail = Detail { value: Some(Value::Units(value)), ..Detail::default() };
    TimelineEvent { detail, ..TimelineEvent::new(lane, at_us, kind) }
}

/// Turns of eight clients, with a minute between the tenth and the eleventh event.
fn many_events() -> Timeline {
    let mut events = Vec::new();
    for turn in 0..16_u64 {
        let at_us = turn * 7_500 + if turn < 2 { 0 } else { 60_000_000 };
        let value = 1_000_000 - i64::try_from(turn).unwrap();
        let lane = usize::try_from(turn % 8).unwrap();
        events.extend([
            event(at_us, lane, EventKind::Wait, value),
            event(at_us + 1_500, lane, EventKind::Held, value),
            event(at_us + 3_000, lane, EventKind::Read, value),
            event(at_us + 4_500, lane, EventKind::Write, value - 1),
            event(at_us + 6_000, lane, EventKind::Release, value),
        ]);
    }
    let lanes = vec![TimelineLane::default(); 8];
    Timeline { lanes, events }
}

#[test]
fn scrolled_labels_never_overlap() {
    for language in Language::ALL {
        let view = Drawing::scrolled(many_events(), Vec::new(), language);
        for lane in 0..view.timeline.lanes.len() {
            let events = view.timeline.events.iter().enumerate();
            let own = events.filter(|(_, event)| event.lane == lane);
            let spans: Vec<(f64, f64)> = own
                .filter_map(|(index, _)| {
                    let from = view.place(index) * view.axis.width;
                    let shown = view.labels[index].first()?;
                    Some((from, from + labels::text_width(&shown.label.text)))
                })
                .collect();
            assert!(spans.len() > 4, "{view:?}");
            assert!(spans.windows(2).all(|pair| pair[1].0 >= pair[0].1), "{view:?}");
        }
    }
}

/// Reads and writes of two orders, the loss and its fork are labelled on the smallest phone.
#[test]
fn few_events_have_all_main_labels() {
    let events = vec![
        event(0, 0, EventKind::Sent, 0),
        event(100, 1, EventKind::Sent, 0),
        event(1_000, 0, EventKind::Read, 10),
        event(1_200, 1, EventKind::Read, 10),
        event(2_000, 1, EventKind::Write, 9),
        event(2_300, 1, EventKind::Answered, 201),
        event(90_000, 0, EventKind::Write, 9),
        event(90_300, 0, EventKind::Answered, 201),
    ];
    for language in Language::ALL {
        let lanes = vec![TimelineLane::default(); 2];
        let view = Drawing::fitting(Timeline { lanes, events: events.clone() }, language);
        for index in [2, 3, 4, 6] {
            let widths: String = view.labels[index].iter().map(|it| it.widths.as_str()).collect();
            assert!(widths.contains("narrow") && widths.contains("wide"), "{view:?}");
        }
    }
}

/// A paused holder has its lock, and then what is left of it, beneath the sign of its pause; and
/// what makes the lesson is labelled on the smallest phone: check, end of the lease, next lock,
/// delete.
#[test]
fn late_delete_is_told_by_its_labels() {
    let mut events = vec![
        event(0, 0, EventKind::Held, 0),
        event(2_000, 0, EventKind::Read, 10),
        event(4_000, 0, EventKind::Write, 9),
        event(6_000, 0, EventKind::Committed, 0),
        event(8_000, 0, EventKind::Delete, 0),
        event(9_000, 0, EventKind::Paused, 1_600),
        event(1_500_000, 0, EventKind::Expired, 0),
        event(1_510_000, 1, EventKind::Held, 0),
        event(1_512_000, 1, EventKind::Read, 9),
        event(1_600_000, 0, EventKind::Resumed, 0),
        event(1_602_000, 0, EventKind::Foreign, 0),
        event(1_602_000, 1, EventKind::Gone, 0),
    ];
    for event in &mut events {
        event.detail.value = event.detail.value.filter(|_| is_main(event));
        event.detail.other = Some("B".to_owned());
    }
    let lanes = vec![TimelineLane::default(); 2];
    for language in Language::ALL {
        let timeline = Timeline { lanes: lanes.clone(), events: events.clone() };
        let view = Drawing::fitting(timeline, language);
        for index in [4, 6, 7, 10, 11] {
            let widths = view.labels[index].iter().flat_map(|it| it.widths.split(' '));
            assert_eq!(widths.count(), labels::WIDTHS.len(), "{index}: {view:?}");
        }

        let bar = |index: usize| (view.activity(&index), view.pause(&index).is_some());
        assert_eq!(bar(4), (Activity::Lock, false));
        assert_eq!(bar(5), (Activity::Lock, true));
        assert_eq!(bar(6), (Activity::Over, true));
        assert_eq!(bar(9), (Activity::Over, false));
        let pauses = (0..events.len()).filter(|index| view.pause(index).is_some());
        assert_eq!(pauses.count(), 2, "{view:?}");
    }
}

/// The bar of a holder goes on to the edge, unless its last event says that it is done.
#[test]
fn rejected_write_ends_its_bar() {
    for (last, goes_on) in [(EventKind::Refused, false), (EventKind::Read, true)] {
        let events = vec![
            event(0, 0, EventKind::Held, 0),
            event(1_000, 0, EventKind::Expired, 0),
            event(2_000, 0, last, 9),
        ];
        let timeline = Timeline { lanes: vec![TimelineLane::default()], events };
        let view = Drawing::fitting(timeline, Language::English);
        assert_eq!(view.bar(&2).is_some(), goes_on);
    }
}

/// The boxes show who has the lock at each node, and the grants of one step are at one place.
#[test]
fn nodes_are_a_row_of_boxes() {
    let mut events = vec![event(0, 0, EventKind::Held, 0)];
    events.extend((1..4).map(|node| event(10, 0, EventKind::Granted, node)));
    events
        .extend([event(900_000, 0, EventKind::Read, 10), event(900_010, 0, EventKind::Release, 0)]);
    let lane = TimelineLane { name: "A, late".to_owned(), ..TimelineLane::default() };
    let timeline = Timeline { lanes: vec![lane], events };
    let view = Drawing::fitting(timeline.clone(), Language::English);
    let [row] = view.rows.as_slice() else { panic!("{:?}", view.rows) };
    let sign = row.sign(3).unwrap();
    for shown in &sign.labels {
        let owners: Vec<&str> = view.boxes(&shown.label).into_iter().map(|(_, it)| it).collect();
        assert_eq!(owners, ["A", "A", "A", "–", "–"]);
    }
    assert!(row.sign(2).is_none() && row.sign(5).is_some() && view.place(1) == view.place(3));
    assert!(view.signs().iter().any(|(name, ..)| *name == "granted"), "{:?}", view.signs());
    assert!(Drawing::lanes(timeline.clone(), Language::English).height() < view.height());

    // No node need have both: the first one does not know that it has lost them.
    let mut both = timeline;
    both.lanes.push(TimelineLane { name: "B".to_owned(), ..TimelineLane::default() });
    both.events.insert(5, event(900_005, 1, EventKind::Held, 0));
    let view = Drawing::fitting(both, Language::English);
    assert!(view.overlap_labels().iter().any(|(text, ..)| text == "A and B act as holders"));
}

/// A legend has each mark of the drawing once, and no other one.
#[test]
fn legend_has_the_marks_that_are_drawn() {
    let events = vec![
        event(0, 0, EventKind::Sent, 0),
        event(1_000, 0, EventKind::Read, 9),
        event(2_000, 0, EventKind::Write, 10),
        event(3_000, 0, EventKind::Commit, 0),
        event(4_000, 0, EventKind::Committed, 0),
        event(5_000, 0, EventKind::Answered, 201),
    ];
    let timeline = Timeline { lanes: vec![TimelineLane::default()], events };
    let view = Drawing::fitting(timeline, Language::English);
    let signs: Vec<_> = view.signs().into_iter().map(|(name, _, text)| (name, text)).collect();
    let expected = [
        ("dot", "another step"),
        ("read", "read"),
        ("write", "write"),
        ("commit", "about to commit"),
        ("committed", "commit"),
        ("returned", "back in stock"),
    ];
    assert_eq!(signs, expected.map(|(name, text)| (name, text.to_owned())));
    assert_eq!(view.booked(&4), ["stock 9 → 10, back in stock"]);
}

#[test]
fn steps_of_a_slider_lead_to_its_value() {
    for (value, least, step) in [(317, 107, 10), (300, 100, 10), (100, 100, 10), (2_000, 100, 10)] {
        let handle = Handle::new("work_ms", value, 100..=1_000, EventKind::Resumed);
        assert_eq!((handle.least(), handle.step()), (least, step), "{value}");
    }
    assert_eq!(Handle::new("retry_ms", 52, 5..=200, EventKind::Tries).least(), 7);
}

/// A pause of 300 ms is not drawn like one of 17 ms: its bar is cut, and that of a lane that goes
/// on during the pause, but not of one that is done.
#[test]
fn bars_are_cut_where_time_is_shortened() {
    let cuts = |pause_us: u64| {
        let events = vec![
            event(0, 2, EventKind::Read, 10),
            event(1_000, 2, EventKind::Answered, 10),
            event(2_000, 0, EventKind::Held, 0),
            event(3_000, 0, EventKind::Paused, 0),
            event(4_000, 1, EventKind::Wait, 0),
            event(4_000 + pause_us, 0, EventKind::Resumed, 0),
            event(5_000 + pause_us, 1, EventKind::Held, 0),
        ];
        let lanes = vec![TimelineLane::default(); 3];
        let view = Drawing::fitting(Timeline { lanes, events }, Language::English);
        let ys: Vec<i32> = view.cuts().into_iter().map(|(_, y)| y).collect();
        (ys, [0, 1].map(|lane| view.top(&lane) + view.size.bar))
    };
    let (cut, bars) = cuts(300_000);
    assert_eq!(cut, bars);
    assert_eq!(cuts(17_000).0, [0; 0]);
}

/// The receipts of two orders are labelled on the smallest phone: the second one has no unit.
#[test]
fn books_are_below_the_lanes() {
    let mut timeline = Timeline {
        lanes: vec![TimelineLane::default(); 2],
        events: vec![
            event(0, 0, EventKind::Read, 10),
            event(1_000, 1, EventKind::Read, 10),
            event(2_000, 0, EventKind::Write, 9),
            event(3_000, 1, EventKind::Write, 9),
        ],
    };
    timeline.mark_stale_writes();
    for (language, title, entry) in [
        (Language::English, "stock: 10 at first", "stock 9 → 9, lost update"),
        (Language::Chinese, "库存：期初 10", "库存 9 → 9，丢失更新"),
    ] {
        let view = Drawing::fitting(timeline.clone(), language);
        assert_eq!(view.rows[0].title, title);
        assert_eq!(view.booked(&3), [entry]);
        assert_eq!((view.telling(), view.kind(&3)), (4, "loss"));
        for index in [2, 3] {
            let sign = view.rows[0].sign(index).unwrap();
            let widths = sign.labels.iter().flat_map(|it| it.widths.split(' '));
            assert_eq!(widths.count(), labels::WIDTHS.len(), "{sign:?}");
        }
        let signs: Vec<&str> = view.signs().iter().map(|(name, ..)| *name).collect();
        assert_eq!(signs, ["read", "write", "sold", "unsold"]);
        let scrolled = Drawing::scrolled(timeline.clone(), Vec::new(), language);
        assert_eq!(scrolled.booked(&3), [entry]);
        assert_eq!(scrolled.signs_below(&2).len(), 1);
    }
}

#[test]
fn loss_tells_more_than_refusal_and_end() {
    let mut events = vec![
        event(0, 0, EventKind::Read, 10),
        event(1, 0, EventKind::Write, 9),
        event(2, 1, EventKind::Refused, 9),
        event(3, 1, EventKind::Answered, 409),
    ];
    let telling = |events: &[TimelineEvent]| {
        let lanes = vec![TimelineLane::default(); 2];
        let timeline = Timeline { lanes, events: events.to_vec() };
        Drawing::fitting(timeline, Language::English).telling()
    };
    assert_eq!((telling(&events[..2]), telling(&events)), (2, 3));
    events[1].detail.is_loss = true;
    assert_eq!(telling(&events), 2);
}

#[test]
fn every_kind_has_its_mark() {
    let marks = include_str!("../../../../templates/parts/timeline_marks.svg");
    for kind in EventKind::iter() {
        let id = format!("id=\"mark-{}\"", kind.shape());
        assert!(marks.contains(&id), "{id}");
    }
    for name in ["sold", "unsold", "returned"] {
        assert!(marks.contains(&format!("id=\"mark-{name}\"")), "{name}");
    }
    assert_ne!(EventKind::Deducted.shape(), EventKind::Read.shape());
    assert_ne!(EventKind::Died.shape(), EventKind::Killed.shape());
}

#[test]
fn long_gaps_are_shortened_and_marked() {
    let view = Drawing::scrolled(many_events(), Vec::new(), Language::English);
    assert_eq!(view.axis.breaks().count(), 1);
    assert!(view.axis.width < 9_000.0, "{}", view.axis.width);
    assert_eq!(view.cuts().len(), 1);
    let times: Vec<String> = view.axis.ticks().into_iter().map(|(_, text)| text).collect();
    assert!(times.contains(&"0.0".to_owned()) && times.contains(&"60,015.0".to_owned()));
}
