//! The site: a static folder that needs no server, made of the shop's own templates and models.
//!
//! Its pages are rendered in this process; what they show of real orders is recorded before, by
//! `holdfast site`. All addresses are relative ([`links`](super::pages)), so that the folder works
//! under any path and from the file system. Tests: `script/test-site`.

mod assets;
pub(super) mod documents;
mod folder;
mod game_scripts;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use askama::Template;
use serde_json::Value;
use tempfile::TempDir;

use self::documents::{DocumentPage, DocumentsPage};
use self::folder::Folder;
pub use self::folder::Sources;
use super::page_place::render;
use super::pages::lab::{course, judged, saved_run};
use super::pages::layout::Layout;
use super::pages::links::{file_of, folder_of};
use super::pages::scheduler_game::{self, FileSizes};
use super::pages::{glossary, race, which_lock};
use holdfast_base::messages::Language;
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::race::model::Race;
use holdfast_lab::run::LabRun;

pub use super::pages::links::RECORDED_LESSONS;
pub use super::pages::race::recorded_races;

/// Marks the pages of the site, and so a folder that a later site may replace.
pub const GENERATOR: &str = "holdfast site";
/// The command with which a visitor gets the whole product, as HTML.
pub const RUN_COMMAND: &str = "<code>pip install holdfast-lab &amp;&amp; holdfast up</code>";

/// The recordings of a shop.
#[derive(Debug)]
pub struct Recordings {
    pub races: Vec<Race>,
    /// The runs of [`RECORDED_LESSONS`].
    pub lessons: Vec<LabRun>,
    /// By level, the states of its best solution.
    pub games: BTreeMap<&'static str, Vec<Value>>,
}

/// The folder in which a site is made: beside that of the site, with which it then changes places.
#[derive(Debug)]
pub struct NewSite {
    /// The folder of the site, without symbolic links.
    out: PathBuf,
    new: TempDir,
}

impl NewSite {
    /// Creates the folder.
    ///
    /// # Errors
    /// If the site's folder has files that are not of a site, or nothing can be created beside it.
    pub fn create(out: &Path) -> anyhow::Result<Self> {
        check_replaceable(out)?;
        // A link to a folder stays.
        let out = if out.exists() { fs::canonicalize(out)? } else { out.to_owned() };
        let name = out.file_name().context("the site needs a folder of its own")?;
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("can't create {}", parent.display()))?;

        let prefix = format!(".{}-", name.to_string_lossy());
        let mut folder = tempfile::Builder::new();
        // A web server of another user reads it.
        let readable = fs::Permissions::from_mode(0o755);
        let new = folder.prefix(&prefix).permissions(readable).tempdir_in(parent);
        let new = new.with_context(|| format!("can't write in {}", parent.display()))?;
        Ok(Self { out, new })
    }

    /// Writes the site, which takes the place of an earlier one once it is complete.
    ///
    /// What fails or is interrupted leaves the site that was there: at its place, or, between two
    /// renames, in a hidden folder beside it.
    ///
    /// # Errors
    /// If a source is missing, or a file cannot be written.
    pub fn write(self, sources: &Sources, recordings: &Recordings) -> anyhow::Result<()> {
        let folder = Folder::new(self.new.path());
        assets::write(&folder, sources)?;
        game_scripts::write_scripts(&folder, &recordings.games)?;
        let sizes = game_scripts::sizes(folder.path())?;
        for language in Language::ALL {
            Edition { language, folder: &folder, sources, sizes: &sizes }.write(recordings)?;
        }
        self.take_place()
    }

    fn take_place(self) -> anyhow::Result<()> {
        let Self { out, new } = self;
        let moved = |from: &Path, to: &Path| {
            let renamed = fs::rename(from, to);
            renamed.with_context(|| format!("can't move {} to {}", from.display(), to.display()))
        };
        if !out.exists() {
            return moved(new.path(), &out);
        }

        let old = new.path().with_extension("old");
        moved(&out, &old)?;
        if let Err(error) = moved(new.path(), &out) {
            moved(&old, &out)?;
            return Err(error);
        }
        fs::remove_dir_all(&old).with_context(|| format!("can't remove {}", old.display()))
    }
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

/// All files and folders of a site.
const TOP_LEVEL: [&str; 12] = [
    "assets",
    "course.html",
    "docs",
    "index.html",
    "judged",
    "judged.html",
    "lessons",
    "lessons.html",
    "race.html",
    "scheduler.html",
    "which-lock.html",
    "zh",
];

/// Checks that nothing but an earlier site is lost when a folder is replaced: a folder of a host
/// may also have a `CNAME`, or a `.git`.
fn check_replaceable(folder: &Path) -> anyhow::Result<()> {
    let Ok(files) = fs::read_dir(folder) else {
        // Also a link that leads nowhere.
        let is_new = fs::symlink_metadata(folder).is_err();
        ensure!(is_new, "{} is not a folder that can be read", folder.display());
        return Ok(());
    };

    let mark = format!("name=\"generator\" content=\"{GENERATOR}\"");
    let first_page = fs::read_to_string(folder.join("index.html")).unwrap_or_default();
    let is_site = first_page.contains(&mark);
    for file in files {
        let name = file?.file_name();
        let is_of_site = is_site && TOP_LEVEL.iter().any(|known| name == *known);
        ensure!(
            is_of_site,
            "{} has {}, which is not of a site of this program: name another folder, or take it \
             away",
            folder.display(),
            name.display()
        );
    }
    Ok(())
}

/// The pages of one language.
struct Edition<'a> {
    language: Language,
    folder: &'a Folder,
    sources: &'a Sources,
    /// Of what the scheduler loads.
    sizes: &'a FileSizes,
}

impl Edition<'_> {
    fn write(&self, recordings: &Recordings) -> anyhow::Result<()> {
        self.add("/which-lock", which_lock::site_page)?;
        self.add("/glossary", |layout| render(&glossary::page(layout)))?;
        self.add("/lab/course", |layout| render(&course::page(layout)))?;
        self.add("/lab/judged", judged::site_list)?;

        let layout_of = |name: &str| self.layout(&format!("/lab/judged/{name}"));
        for (name, page) in judged::site_pages(layout_of) {
            self.write_page(&format!("judged/{name}.html"), &page?)?;
        }

        self.write_lessons(&recordings.lessons)?;
        self.write_documents()?;
        self.add("/lab/scheduler", |layout| scheduler_game::site_page(layout, self.sizes))?;

        let layout = Layout::without_server(self.language, "/", "race.html");
        let embedded = race::site_page(layout, &recordings.races, &self.sources.url, true)?;
        self.write_page("race.html", &embedded)?;
        // Last: a folder that has it is complete.
        self.add("/", |layout| race::site_page(layout, &recordings.races, &self.sources.url, false))
    }

    fn write_lessons(&self, runs: &[LabRun]) -> anyhow::Result<()> {
        let mut recorded = Vec::new();
        for (name, run) in RECORDED_LESSONS.iter().zip(runs) {
            let layout = self.layout(&format!("/lab/lessons/{name}"));
            let page = saved_run::draw(layout, run.clone())?;
            let lesson = lessons::named(name).context("a recorded lesson is unknown")?;
            recorded.push(RecordedLesson { lesson, kilobytes: (page.len() + 500) / 1_000 });
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
    kilobytes: usize,
}
