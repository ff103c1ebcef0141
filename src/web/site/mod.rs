//! The site: a static folder that needs no server, made of the shop's own templates and models.
//!
//! Its pages are rendered in this process; what they show of real orders is recorded before, by
//! `holdfast site`. All addresses are relative ([`links`](super::pages)), so that the folder works
//! under any path and from the file system. Tests: `script/test-site`.

mod assets;
mod documents;
mod folder;
mod scheduler;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use askama::Template;
use serde_json::Value;

use self::documents::{DocumentPage, DocumentsPage};
use self::folder::Folder;
pub use self::folder::Sources;
use super::page_place::render;
use super::pages::lab::{course, judged, saved_run};
use super::pages::layout::Layout;
use super::pages::links::{file_of, folder_of};
use super::pages::{glossary, race, scheduler_game, which_lock};
use holdfast_base::messages::Language;
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::race::model::Race;
use holdfast_lab::run::LabRun;

pub use super::pages::links::RECORDED_LESSONS;
pub use super::pages::race::RECORDED_BUYERS;

/// Marks the pages of the site, and so a folder that a later site may replace.
pub const GENERATOR: &str = "holdfast site";
/// What a visitor types to have the whole product, as HTML.
pub const RUN_COMMAND: &str = "<code>pip install holdfast-lab &amp;&amp; holdfast up</code>";

/// What was recorded in a shop.
#[derive(Debug)]
pub struct Recordings {
    pub races: Vec<Race>,
    /// The runs of [`RECORDED_LESSONS`].
    pub lessons: Vec<LabRun>,
    /// By level, the states of its best solution.
    pub games: BTreeMap<&'static str, Vec<Value>>,
}

/// Writes the site into a folder that does not exist, or in which an earlier one lies.
///
/// It is made beside that folder and then takes its place: what fails or is interrupted leaves the
/// site that was there.
///
/// # Errors
/// If the folder has other files, a source is missing, or a file cannot be written.
pub fn write(out: &Path, sources: &Sources, recordings: &Recordings) -> anyhow::Result<()> {
    check_replaceable(out)?;
    let name = out.file_name().context("the site needs a folder of its own")?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(parent).with_context(|| format!("can't create {}", parent.display()))?;
    let prefix = format!(".{}-", name.to_string_lossy());
    let new = tempfile::Builder::new().prefix(&prefix).permissions(readable()).tempdir_in(parent);
    let new = new.with_context(|| format!("can't write in {}", parent.display()))?;

    let folder = Folder::new(new.path());
    assets::write(&folder, sources)?;
    scheduler::write_scripts(&folder, &recordings.games)?;
    for language in Language::ALL {
        Edition { language, folder: &folder, sources }.write(recordings)?;
    }

    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("can't empty {}", out.display()))?;
    }
    let rename = fs::rename(new.path(), out);
    rename.with_context(|| format!("can't move the site to {}", out.display()))
}

/// Returns the permissions of a folder that a web server of another user reads.
fn readable() -> fs::Permissions {
    fs::Permissions::from_mode(0o755)
}

/// Checks that the documents and PGlite are where they are said to be.
///
/// # Errors
/// If one of them is not there.
pub fn check_sources(sources: &Sources) -> anyhow::Result<()> {
    documents::read_all(&sources.repository.join("docs"), Language::English)?;
    match &sources.pglite {
        Some(package) => assets::check_pglite(package),
        None => Ok(()),
    }
}

/// Checks that nothing but an earlier site is lost when a folder is replaced.
///
/// # Errors
/// If it is no folder, or has files that are not of a site.
pub fn check_replaceable(folder: &Path) -> anyhow::Result<()> {
    let Ok(mut files) = fs::read_dir(folder) else {
        ensure!(!folder.exists(), "{} is not a folder that can be read", folder.display());
        return Ok(());
    };

    let mark = format!("name=\"generator\" content=\"{GENERATOR}\"");
    let first_page = fs::read_to_string(folder.join("index.html")).unwrap_or_default();
    ensure!(
        files.next().is_none() || first_page.contains(&mark),
        "{} has files that are not of a site of Holdfast: name another folder, or empty it",
        folder.display()
    );
    Ok(())
}

/// The pages of one language.
struct Edition<'a> {
    language: Language,
    folder: &'a Folder,
    sources: &'a Sources,
}

impl Edition<'_> {
    fn write(&self, recordings: &Recordings) -> anyhow::Result<()> {
        self.add("/which-lock", which_lock::site_page)?;
        self.add("/glossary", glossary::site_page)?;
        self.add("/lab/course", course::site_page)?;
        self.add("/lab/judged", judged::site_list)?;

        let layout_of = |name: &str| self.layout(&format!("/lab/judged/{name}"));
        for (name, page) in judged::site_pages(layout_of) {
            self.write_page(&format!("judged/{name}.html"), &page?)?;
        }

        self.write_lessons(&recordings.lessons)?;
        self.write_documents()?;
        self.add("/lab/scheduler", |layout| {
            anyhow::Ok(scheduler_game::site_page(layout, &scheduler::sizes(self.folder.path())?)?)
        })?;

        let layout = Layout::without_server(self.language, "/", "race.html");
        let embedded = race::embedded_page(layout, &recordings.races, &self.sources.url)?;
        self.write_page("race.html", &embedded)?;
        // Last: a folder that has it is complete.
        self.add("/", |layout| race::site_page(layout, &recordings.races, &self.sources.url))
    }

    fn write_lessons(&self, runs: &[LabRun]) -> anyhow::Result<()> {
        let mut recorded = Vec::new();
        for (name, run) in RECORDED_LESSONS.iter().zip(runs) {
            let layout = self.layout(&format!("/lab/lessons/{name}"));
            let page = saved_run::draw(layout, run.clone())?;
            let lesson = lessons::named(name).context("a recorded lesson is unknown")?;
            recorded.push(RecordedLesson { lesson, bytes: page.len() });
            self.write_page(&format!("lessons/{name}.html"), &page)?;
        }
        self.add("/lab/lessons", |layout| render(&LessonsPage { layout, lessons: recorded }))
    }

    fn write_documents(&self) -> anyhow::Result<()> {
        let docs = self.sources.repository.join("docs");
        let documents = documents::read_all(&docs, self.language)?;
        for document in &documents {
            let file = format!("docs/{}.html", document.slug());
            let layout = Layout::without_server(self.language, "/docs", &file);
            self.write_page(&file, &render(&DocumentPage { layout, document })?)?;
        }
        for picture in documents::pictures(&docs)? {
            let name = picture.file_name().unwrap_or_default().to_string_lossy();
            let file = format!("{}docs/bench/{name}", folder_of(self.language));
            self.folder.write(&file, fs::read(&picture)?)?;
        }
        self.add("/docs", |layout| render(&DocumentsPage { layout, documents: &documents }))
    }

    /// Writes the page that shows what a page of the shop shows.
    fn add<E: Into<anyhow::Error>>(
        &self,
        path: &str,
        page: impl FnOnce(Layout) -> Result<String, E>,
    ) -> anyhow::Result<()> {
        let file = file_of(path).context("a page has no file")?;
        self.write_page(&file, &page(self.layout(path)).map_err(Into::into)?)
    }

    fn write_page(&self, file: &str, page: &str) -> anyhow::Result<()> {
        self.folder.write(&format!("{}{file}", folder_of(self.language)), page)
    }

    fn layout(&self, path: &str) -> Layout {
        Layout::without_server(self.language, path, &file_of(path).unwrap_or_default())
    }
}

#[derive(Debug, Template)]
#[template(path = "site/lessons.html")]
struct LessonsPage {
    layout: Layout,
    lessons: Vec<RecordedLesson>,
}

#[derive(Debug)]
struct RecordedLesson {
    lesson: &'static Lesson,
    bytes: usize,
}

impl RecordedLesson {
    fn kilobytes(&self) -> usize {
        (self.bytes + 500) / 1_000
    }
}
