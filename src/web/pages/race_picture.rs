//! Draws a race as an animated picture with its figures, which plays on its own in a document.

use askama::Template;

use super::race_view::{RaceView, server};
use super::respond::hash_source;
use super::timeline::{TimelineView, fade_begin};
use holdfast_base::messages::Language;
use holdfast_lab::race::model::Race;

const CELLS_PER_ROW: usize = 20;
/// Between the verdict and the footer; a drawing is twice as large as on a page, if it has room.
const DRAWING_HEIGHT: i32 = 400;

const STYLE: &str = include_str!("../../../static/race-picture.css");

#[derive(Debug, Template)]
#[template(path = "race_picture.svg", escape = "html")]
struct RacePicture<'a> {
    view: RaceView<'a>,
    lock: String,
    /// The timeline of two orders; else the receipts of a crowd.
    drawing: Option<TimelineView>,
    drawing_height: i32,
}

/// Returns the source with which a content security policy admits the picture's style.
pub(super) fn style_source() -> String {
    hash_source(STYLE)
}

/// Returns the content security policy of the picture alone, which admits only its style.
pub(super) fn policy() -> String {
    format!("default-src 'none'; style-src {}", style_source())
}

/// Returns the picture, an SVG document; `None` without a result.
pub(super) fn draw(race: &Race, language: Language) -> Option<String> {
    let view = RaceView::of(race, language)?;
    let mut drawing = view.drawing();

    if let Some(shown) = &mut drawing {
        shown.is_animated = true;
        // An animation says who was sold a unit at its end, in the verdict.
        for (lane, order) in shown.drawing.timeline.lanes.iter_mut().zip(&view.result.lanes) {
            lane.replica = server(order, language);
        }
    }

    let height = drawing.as_ref().map_or(0, |drawing| drawing.height() * 2);
    let picture = RacePicture {
        view,
        drawing_height: height.min(DRAWING_HEIGHT),
        lock: match race.lock.as_str() {
            "none" => language.text("race-picture-off"),
            lock => language.text_with("race-picture-lock", &[("lock", lock.into())]),
        },
        drawing,
    };

    picture.render().ok()
}
