//! The files of the site: where its links lead, what is for nothing, and the sizes that it states.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use percent_encoding::percent_decode_str;
use regex::Regex;

use super::site;
use super::visit::Visit;
use crate::share_machine;

/// What a page refers to, and the places in it.
struct Links {
    links: Vec<String>,
    ids: BTreeSet<String>,
}

impl Links {
    fn of(page: &Path) -> Self {
        static TAG: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"<([a-z]\w*)(\s[^>]*)>").unwrap());
        static ATTRIBUTE: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#"\s(href|src|data-recordings|id)="([^"]*)""#).unwrap());

        let html = fs::read_to_string(page).unwrap();
        let mut found = Self { links: Vec::new(), ids: BTreeSet::new() };
        for tag in TAG.captures_iter(&html) {
            for attribute in ATTRIBUTE.captures_iter(&tag[2]) {
                let value = attribute[2].replace("&amp;", "&");
                let value = percent_decode_str(&value).decode_utf8().unwrap().into_owned();
                if &attribute[1] == "id" {
                    found.ids.insert(value);
                } else if &tag[1] != "use" {
                    found.links.push(value);
                }
            }
        }
        found
    }

    /// Returns the links to files of the site, as file and place, each of which may be empty.
    fn internal(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_external = |link: &&String| {
            ["http:", "https:", "mailto:", "data:"].iter().any(|it| link.starts_with(it))
        };
        let internal = self.links.iter().filter(move |link| !is_external(link));
        internal.map(|link| link.split_once('#').unwrap_or((link, "")))
    }
}

/// Returns every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "html")
}

#[test]
fn every_internal_link_leads_somewhere() {
    let _machine = share_machine();
    let folder = site();
    let pages: BTreeMap<PathBuf, Links> = files(folder)
        .into_iter()
        .filter(|file| is_page(file))
        .map(|file| (file.clone(), Links::of(&file)))
        .collect();
    assert!(pages.len() > 60, "only {} pages", pages.len());

    let mut wrong = Vec::new();
    for (page, links) in &pages {
        for (file, place) in links.internal() {
            let target = if file.is_empty() {
                Ok(page.clone())
            } else {
                page.with_file_name(file).canonicalize()
            };
            let leads = target.is_ok_and(|target| {
                let has_place = || pages.get(&target).is_none_or(|it| it.ids.contains(place));
                target.is_file() && target.starts_with(folder) && (place.is_empty() || has_place())
            });
            if !leads {
                wrong.push(format!("{}: {file}#{place}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    for (page, translation) in [
        ("docs/course.html", r#"href="../zh/docs/course.html">中文"#),
        ("zh/docs/course.html", r#"href="../../docs/course.html">English"#),
    ] {
        let html = fs::read_to_string(folder.join(page)).unwrap();
        assert!(html.contains(translation), "no link from {page} to its translation");
    }

    // One entry of the navigation leads to these.
    for page in ["which-lock.html", "judged.html", "course.html", "zh/course.html"] {
        let html = fs::read_to_string(folder.join(page)).unwrap();
        let header = html.split("</header>").next().unwrap();
        assert!(header.contains("href=\"which-lock.html\" aria-current=\"page\""), "{page}");
        assert!(!header.contains("href=\"judged.html\""), "{page}");
    }
}

fn gzipped(content: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap().len()
}

fn rounded(size: usize, unit: usize) -> usize {
    (size + unit / 2) / unit
}

/// Before anything is loaded, and they are those of the files.
#[test]
fn sizes_are_said() {
    let _machine = share_machine();
    let folder = site();
    let assets = folder.join("assets");
    let mut played = files(&assets.join("pglite"));
    played.retain(|file| !file.ends_with("LICENSE"));
    played.push(assets.join("shop-sql.js"));
    let played: Vec<Vec<u8>> = played.iter().map(|file| fs::read(file).unwrap()).collect();
    let plain: usize = played.iter().map(Vec::len).sum();
    let packed: usize = played.iter().map(|content| gzipped(content)).sum();
    let recording = fs::read(assets.join("recorded.js")).unwrap().len();

    for language in ["", "zh/"] {
        let read =
            |page: &str| fs::read_to_string(folder.join(format!("{language}{page}"))).unwrap();
        let scheduler = read("scheduler.html");
        for size in [
            format!("{} MB", rounded(plain, 1_000_000)),
            format!("{} MB", rounded(packed, 1_000_000)),
            format!("{} kB", rounded(recording, 1_000)),
        ] {
            assert!(scheduler.contains(&size), "{language}: not {size}");
        }

        let list = read("lessons.html");
        let lessons = files(&folder.join(format!("{language}lessons")));
        assert_eq!(lessons.len(), 3, "{lessons:?}");
        for lesson in lessons {
            let name = lesson.file_name().unwrap().to_str().unwrap();
            let size = lesson.metadata().unwrap().len() as usize;
            let size = format!("{} kB", rounded(size, 1_000));
            let link = format!("lessons/{name}\">");
            let is_said = list
                .lines()
                .any(|line| line.split_once(&link).is_some_and(|(_, after)| after.contains(&size)));
            assert!(is_said, "{name}: not {size}");
        }
    }
}

/// Each page is reached from the first one; each other file is linked, or a page loads it.
#[tokio::test(flavor = "multi_thread")]
async fn every_file_is_for_something() {
    let visit = Visit::begin().await;
    visit.open("index.html").await;
    visit.open("zh/judged/redis-py.html").await;
    visit.open("scheduler.html").await;
    visit.watch("oversell").await;
    visit.play("oversell").await;
    visit.until("a game", "return !!document.querySelector('#step-A')", &[]).await;

    let folder = visit.folder;
    let all: BTreeSet<PathBuf> =
        files(folder).into_iter().filter(|file| !file.ends_with("LICENSE")).collect();
    let is_preview = |file: &&PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy();
        file.starts_with(folder.join("assets"))
            && name.starts_with("race-preview-")
            && name.ends_with(".png")
    };
    let mut queue = vec![folder.join("index.html")];
    // Pages that show a link to the site load them.
    queue.extend(all.iter().filter(is_preview).cloned());
    let loaded = visit.host.asked_files();
    queue.extend(loaded.into_iter().filter(|file| file.starts_with(folder.join("assets"))));

    let mut reached = BTreeSet::new();
    while let Some(file) = queue.pop() {
        if !reached.insert(file.clone()) || !is_page(&file) {
            continue;
        }
        let links = Links::of(&file);
        let targets = links.internal().filter(|(target, _)| !target.is_empty());
        queue.extend(
            targets.filter_map(|(target, _)| file.with_file_name(target).canonicalize().ok()),
        );
    }
    let unused: Vec<_> = all.difference(&reached).collect();
    assert!(unused.is_empty(), "{unused:?}");
    visit.end().await;
}
