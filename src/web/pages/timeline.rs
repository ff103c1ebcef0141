//! The SVG of a timeline's drawing, with the list of its events in words.

use std::ops::Deref;

use askama::Template;

use holdfast_story::Drawing;

#[derive(Debug, Template)]
#[template(path = "parts/timeline.html")]
pub struct TimelineView {
    pub drawing: Drawing,
    pub is_animated: bool,
    /// Id of the description of a scrolled drawing; empty for one that fits.
    labelled_by: String,
}

impl TimelineView {
    /// Describes a drawing by an element of the page.
    #[must_use]
    pub fn labelled_by(self, id: &str) -> Self {
        Self { labelled_by: id.to_owned(), ..self }
    }
}

impl From<Drawing> for TimelineView {
    fn from(drawing: Drawing) -> Self {
        Self { drawing, is_animated: false, labelled_by: String::new() }
    }
}

/// A template reads of the view what it needs of the drawing.
impl Deref for TimelineView {
    type Target = Drawing;

    fn deref(&self) -> &Drawing {
        &self.drawing
    }
}

/// Returns the part of an animation that is over when a place of the playback, from 0 to 1, is
/// reached; the rest shows the end.
pub fn fade_begin(at: f64) -> String {
    format!("{:.3}", 0.02 + at * 0.6)
}
