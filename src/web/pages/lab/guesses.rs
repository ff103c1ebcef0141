//! The answers of all visitors to a lesson's question, as bars.

use crate::lab::lessons::Lesson;
use crate::lab::store;
use crate::messages::Language;
use crate::web::{AppState, Problem};

#[derive(Debug)]
pub struct GuessBar {
    pub text: String,
    pub count: i64,
    /// Length of the bar, 0 to 200.
    pub length: i64,
    pub is_own: bool,
    pub is_right: bool,
}

/// Counts the answers in the stored runs of a lesson.
pub async fn bars(
    state: &AppState,
    lesson: &Lesson,
    own: usize,
    language: Language,
) -> Result<Vec<GuessBar>, Problem> {
    let texts = lesson.guesses(language);
    let counts = store::guess_counts(&state.shop.pool, lesson.name, texts.len()).await?;
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |(place, (text, count)): (usize, (String, i64))| GuessBar {
        text,
        count,
        length: count * 200 / most,
        is_own: place == own,
        is_right: place == lesson.right,
    };
    Ok(texts.into_iter().zip(counts).enumerate().map(bar).collect())
}

pub fn total(bars: &[GuessBar]) -> i64 {
    bars.iter().map(|bar| bar.count).sum()
}
