//! The documents of `docs/` as pages. What a page of the site shows already is no document beside
//! it: a link to it leads to that page.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use askama::Template;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::web::pages::layout::Layout;
use holdfast_base::messages::Language;

/// In the order of the list: what a newcomer reads first.
const NAMES: [&str; 13] = [
    "CONCEPTS",
    "WHICH-LOCK",
    "COURSE",
    "TEACHING",
    "JUDGE",
    "SERVICE",
    "FENCES",
    "LEDGER",
    "PERFORMANCE",
    "ARCHITECTURE",
    "OPERATING",
    "CONFIGURATION",
    "SECURITY",
];
/// How a command begins that runs in a clone of the repository.
const OF_CLONE: [&str; 4] = ["script/", "judge/", "load/", "cargo "];

#[derive(Debug, Template)]
#[template(path = "site/documents.html")]
pub(super) struct DocumentsPage<'a> {
    pub layout: Layout,
    pub documents: &'a [Document],
}

#[derive(Debug, Template)]
#[template(path = "site/document.html")]
pub(super) struct DocumentPage<'a> {
    pub layout: Layout,
    pub document: &'a Document,
}

#[derive(Debug)]
pub(super) struct Document {
    name: &'static str,
    pub title: String,
    pub html: String,
    /// True if it is in English on a page of another language.
    pub is_foreign: bool,
    pub has_commands_of_clone: bool,
}

impl Document {
    pub fn slug(&self) -> String {
        self.name.to_ascii_lowercase()
    }
}

pub(super) fn read_all(docs: &Path, language: Language) -> anyhow::Result<Vec<Document>> {
    NAMES.iter().map(|name| read(docs, name, language)).collect()
}

/// Returns the pictures that documents show.
pub(super) fn pictures(docs: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = docs.join("bench");
    let files = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|kind| kind == "svg")).collect())
}

fn read(docs: &Path, name: &'static str, language: Language) -> anyhow::Result<Document> {
    let translation = docs.join(format!("{name}.{}.md", language.tag()));
    let is_translated = translation.exists();
    let file = if is_translated { translation } else { docs.join(format!("{name}.md")) };
    let text = fs::read_to_string(&file);
    let text = text.with_context(|| {
        format!("no document {}: name the repository's folder with --sources", file.display())
    })?;

    let page = PageOf { name, language, is_translated };
    let mut events: Vec<Event<'_>> = Parser::new_ext(&text, Options::ENABLE_TABLES).collect();
    let has_commands_of_clone = events.iter().any(is_command_of_clone);
    let title = give_anchors(&mut events);
    let events = page.with_links(events);

    let mut html = String::new();
    html::push_html(&mut html, with_scrolling(events).into_iter());
    let is_foreign = language != Language::English && !is_translated;
    Ok(Document { name, title, html, is_foreign, has_commands_of_clone })
}

/// Returns a text of the repository as a part of another page.
pub(in crate::web) fn html_of(text: &str) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    give_anchors(&mut events);
    let mut html = String::new();
    html::push_html(&mut html, with_scrolling(events).into_iter());
    html
}

fn is_command_of_clone(event: &Event<'_>) -> bool {
    match event {
        Event::Code(code) | Event::Text(code) => OF_CLONE.iter().any(|start| code.contains(start)),
        _ => false,
    }
}

/// Gives each heading the anchor that GitHub gives it. Returns the words of the first one.
fn give_anchors(events: &mut [Event<'_>]) -> String {
    let mut title = None;
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut begin = None;
    let mut words = String::new();

    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => {
                begin = Some(at);
                words.clear();
            }
            Event::Text(text) | Event::Code(text) if begin.is_some() => words.push_str(text),
            Event::End(TagEnd::Heading(_)) => {
                let Some(begin) = begin.take() else { continue };
                let anchor = anchor(&words);
                let count = times.entry(anchor.clone()).or_default();
                // As GitHub distinguishes headings of the same words.
                let unique = if *count > 0 { format!("{anchor}-{count}") } else { anchor };
                *count += 1;
                if let Event::Start(Tag::Heading { id, .. }) = &mut events[begin] {
                    *id = Some(unique.into());
                }
                title.get_or_insert_with(|| words.clone());
            }
            _ => {}
        }
    }
    title.unwrap_or_default()
}

fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The page of a document in an edition of the site.
struct PageOf {
    name: &'static str,
    language: Language,
    is_translated: bool,
}

impl PageOf {
    /// Leads links to the site's pages. Of a link to what the site does not have, the text stays.
    fn with_links<'a>(&self, events: Vec<Event<'a>>) -> Vec<Event<'a>> {
        let mut is_left_out = false;
        let mut kept = Vec::with_capacity(events.len());

        for mut event in events {
            match &mut event {
                Event::Start(Tag::Link { dest_url, .. }) => match self.address(dest_url) {
                    Some(address) => *dest_url = CowStr::from(address),
                    None => {
                        is_left_out = true;
                        continue;
                    }
                },
                Event::End(TagEnd::Link) if std::mem::take(&mut is_left_out) => continue,
                _ => {}
            }
            kept.push(event);
        }
        kept
    }

    /// Returns where a link of the document leads on the site.
    fn address(&self, link: &str) -> Option<String> {
        let (file, place) =
            link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
        if link.contains("://") || file.is_empty() {
            return Some(link.to_owned());
        }

        let hash = place.map_or_else(String::new, |place| format!("#{place}"));
        if let Some(judged) = file.strip_prefix("judged/").and_then(|it| it.strip_suffix(".json")) {
            return Some(format!("../judged/{judged}.html"));
        }
        match file {
            "../README.md" => return Some("../index.html".to_owned()),
            "GLOSSARY.md" => return Some(format!("glossary.html{hash}")),
            "JUDGED.md" if place == Some("services") => {
                return Some(format!("../judged.html{hash}"));
            }
            "JUDGED.md" => return Some("../judged.html".to_owned()),
            _ => {}
        }

        let is_chinese = file.ends_with(".zh.md");
        let name = file.strip_suffix(".md")?;
        let name = name.strip_suffix(".zh").unwrap_or(name);
        let known = NAMES.iter().find(|known| **known == name)?;
        // Its translation, or what it is a translation of.
        let is_other_edition = *known == self.name
            && is_chinese == (self.language == Language::English)
            && (is_chinese || self.is_translated);
        let edition = match self.language {
            _ if !is_other_edition => "",
            Language::English => "../zh/docs/",
            Language::Chinese => "../../docs/",
        };
        Some(format!("{edition}{}.html{hash}", known.to_ascii_lowercase()))
    }
}

/// Lets tables and code that are wider than the page scroll, also by keyboard: named by their
/// heading.
fn with_scrolling(events: Vec<Event<'_>>) -> Vec<Event<'_>> {
    let mut heading = CowStr::Borrowed("main");
    let mut shown = Vec::with_capacity(events.len());

    for event in events {
        match &event {
            Event::Start(Tag::Heading { id: Some(id), .. }) => heading = id.clone(),
            Event::Start(Tag::Table(_) | Tag::CodeBlock(_)) => {
                let by = format!("aria-labelledby=\"{heading}\"");
                let group = format!("<div class=\"scroll\" tabindex=\"0\" role=\"group\" {by}>");
                shown.push(Event::Html(group.into()));
            }
            _ => {}
        }

        let is_end = matches!(event, Event::End(TagEnd::Table | TagEnd::CodeBlock));
        shown.push(event);
        if is_end {
            shown.push(Event::Html("</div>\n".into()));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_of_the_site() {
        let english = PageOf { name: "COURSE", language: Language::English, is_translated: false };
        let chinese = PageOf { name: "COURSE", language: Language::Chinese, is_translated: true };
        let foreign = PageOf { name: "FENCES", language: Language::Chinese, is_translated: false };
        for (page, link, expected) in [
            (&english, "JUDGE.md#the-work", Some("judge.html#the-work")),
            (&english, "COURSE.zh.md", Some("../zh/docs/course.html")),
            (&chinese, "COURSE.md", Some("../../docs/course.html")),
            (&chinese, "TEACHING.zh.md", Some("teaching.html")),
            (&foreign, "FENCES.md#here", Some("fences.html#here")),
            (&english, "judged/redis-py.json", Some("../judged/redis-py.html")),
            (&english, "JUDGED.md#redis-py", Some("../judged.html")),
            (&english, "JUDGED.md#services", Some("../judged.html#services")),
            (&english, "#here", Some("#here")),
            (&english, "https://example.org/a.md", Some("https://example.org/a.md")),
            (&english, "../judge/rslock", None),
            (&english, "../crates/holdfast-lock/README.md", None),
        ] {
            assert_eq!(page.address(link).as_deref(), expected, "{link}");
        }
    }

    #[test]
    fn headings_of_the_same_words_have_different_anchors() {
        let mut events: Vec<Event<'_>> = Parser::new("# `a` B!\n\n## C\n\n## C\n").collect();
        assert_eq!(give_anchors(&mut events), "a B!");
        let mut html = String::new();
        html::push_html(&mut html, events.into_iter());
        for anchor in ["<h1 id=\"a-b\">", "<h2 id=\"c\">", "<h2 id=\"c-1\">"] {
            assert!(html.contains(anchor), "{html}");
        }
    }
}
