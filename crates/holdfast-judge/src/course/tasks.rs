//! The task of each level, which stands in the document of the course.

use holdfast_base::message;
use holdfast_base::messages::Language;

/// Returns the heading of a level.
pub(super) fn heading(level: u32, language: Language) -> String {
    let title = language.text(&format!("course-{level}-title"));
    message!("course-level", level, title).text(language)
}

pub(super) fn task(level: u32, language: Language) -> String {
    format!("{}\n\n{}", heading(level, language), task_text(level, language))
}

/// Returns the document of the course.
pub fn document(language: Language) -> &'static str {
    match language {
        Language::English => include_str!("../../../../docs/COURSE.md"),
        Language::Chinese => include_str!("../../../../docs/COURSE.zh.md"),
    }
}

/// Returns the first paragraph on a level in the document of the course, on one line.
pub fn task_text(level: u32, language: Language) -> String {
    let heading = format!("### {}\n\n", heading(level, language));
    let (_, after) = document(language).split_once(&heading).unwrap_or_default();
    let paragraph = after.split("\n\n").next().unwrap_or_default();
    paragraph.lines().collect::<Vec<_>>().join(language.space())
}

#[cfg(test)]
mod tests {
    use super::super::levels::LAST_LEVEL;
    use super::*;

    #[test]
    fn document_has_a_task_for_every_level() {
        for language in Language::ALL {
            for level in 1..=LAST_LEVEL {
                let task = task_text(level, language);
                let is_sentence = task.ends_with(['.', '。']) && task.chars().count() > 20;
                assert!(is_sentence && !task.contains('\n'), "{level}: {task:?}");
            }
        }
    }
}
