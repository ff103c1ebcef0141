//! `holdfast keys`: lists the largest keys, and removes keys on request.
//!
//! Guarantees: only keys are removed that were named, or confirmed by a word typed at a terminal
//! (or by `--yes`); of several names, none if a key is absent or protected. The shop's own keys
//! stay unless `--force` is set. A key that was found to be big is examined again before it is
//! removed. The result goes to stdout, everything else to stderr. Tests:
//! `tests/it/keys_command.rs`, `keys_confirmation.rs`.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use tokio::time::Instant;

use super::{Big, Entry, Found, Removal, Search, With, drawing, find, look_at, name, remove};
use crate::lock::Redis;
use crate::output;
use crate::shop::types::grouped;

const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Word that confirms a removal.
const WORD: &str = "delete";

#[derive(Debug, Clone)]
pub struct Asked {
    pub pattern: String,
    pub top: usize,
    /// True: the largest by memory; false: by elements.
    pub by_memory: bool,
    pub big: Big,
    pub delete: Delete,
    pub with: With,
    /// Prefix of the shop's own keys.
    pub prefix: String,
    /// True if the shop's own keys may be deleted.
    pub force: bool,
    pub json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delete {
    Nothing,
    /// Names as [`name::shown`] formats them.
    Named(Vec<String>),
    /// The big keys that are listed; `unasked`: without a confirmation.
    Big {
        unasked: bool,
    },
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    found: Option<&'a Found>,
    big_is_more_than: Big,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<&'a [Deleted]>,
}

#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    #[serde(flatten)]
    pub(super) entry: Entry,
    /// `None` if the key was skipped: it was absent, of another type, or no longer big.
    #[serde(flatten)]
    pub(super) removal: Option<Removal>,
}

/// Lists or removes keys; returns whether all that was to be removed is gone.
pub async fn run(redis: &Redis, asked: &Asked) -> anyhow::Result<bool> {
    match &asked.delete {
        Delete::Nothing => {
            let found = look(redis, asked, false).await?;
            report(asked, Some(&found), None)?;
            Ok(true)
        }
        Delete::Named(names) => {
            let entries = named(redis, asked, names).await?;
            let deleted = delete(redis, asked, entries, false).await?;
            report(asked, None, Some(&deleted))?;
            Ok(is_all_gone(&deleted))
        }
        Delete::Big { unasked } => {
            ensure!(
                *unasked || std::io::stdin().is_terminal(),
                "there is no terminal to ask on before the big keys are removed, so nothing was \
                 done; --yes says that nobody needs to be asked"
            );
            let found = look(redis, asked, true).await?;
            let confirmed = found.top.is_empty() || *unasked || confirm(asked, &found)?;
            let entries = if confirmed { found.top.clone() } else { Vec::new() };
            let deleted = delete(redis, asked, entries, true).await?;
            report(asked, Some(&found), Some(&deleted))?;
            if !confirmed {
                eprintln!("Nothing was removed.");
            }
            Ok(confirmed && is_all_gone(&deleted))
        }
    }
}

async fn look(redis: &Redis, asked: &Asked, only_big: bool) -> anyhow::Result<Found> {
    let search = Search {
        pattern: asked.pattern.clone(),
        top: asked.top,
        by_memory: asked.by_memory,
        big: asked.big,
        only_big,
        leave: (only_big && !asked.force).then(|| asked.prefix.clone()),
    };
    let mut line = Line::new();
    let found = find(redis, &search, |far| line.draw(|| drawing::far(far))).await;
    line.wipe();
    let found = found.context("can't look at the keys")?;
    if let Some(why) = found.no_memory.as_ref().filter(|_| asked.by_memory) {
        eprintln!(
            "holdfast: this Redis does not tell how much memory a key takes ({why}); the largest \
             by elements are listed instead"
        );
    }
    Ok(found)
}

/// Returns the keys of these names, all of which exist and may be removed.
async fn named(redis: &Redis, asked: &Asked, names: &[String]) -> anyhow::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::with_capacity(names.len());
    for text in names {
        let bytes = name::read(text).map_err(anyhow::Error::msg)?;
        if is_the_shops(asked, &bytes) && !asked.force {
            bail!(
                "{text} begins with {} and so belongs to the shop: a lock that is removed may be \
                 held twice, a token sent twice. Nothing was removed. If that is meant, say \
                 --force; if it is another shop's, say what this one's keys begin with: \
                 --redis-prefix",
                asked.prefix
            );
        }
        match look_at(redis, &bytes, asked.big).await? {
            Some(entry) if entries.iter().any(|other| other.name == entry.name) => {}
            Some(entry) => entries.push(entry),
            None => bail!(
                "there is no key {text} (a name is given whole, and as `holdfast keys` prints it). \
                 Nothing was removed"
            ),
        }
    }
    Ok(entries)
}

fn is_the_shops(asked: &Asked, name: &[u8]) -> bool {
    name.starts_with(asked.prefix.as_bytes())
}

/// Asks for the confirmation. The table goes to stderr, because it is part of the question.
fn confirm(asked: &Asked, found: &Found) -> anyhow::Result<bool> {
    let count = found.top.len();
    eprint!("{}", drawing::table(found, asked.big));
    eprint!(
        "\nRemove {}, for good? Type `{WORD}`, anything else leaves {}: ",
        if count == 1 { "this key".to_owned() } else { format!("these {count} keys") },
        if count == 1 { "it" } else { "them" },
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if !answer.ends_with('\n') {
        // The input ended without a newline, so the cursor is still behind the question.
        eprintln!();
    }
    read.context("can't read the answer, so nothing was removed")?;
    Ok(answer.trim() == WORD)
}

/// Removes keys in turn; `still_big`: only keys that are still big.
async fn delete(
    redis: &Redis,
    asked: &Asked,
    entries: Vec<Entry>,
    still_big: bool,
) -> anyhow::Result<Vec<Deleted>> {
    let mut deleted = Vec::with_capacity(entries.len());
    let mut line = Line::new();
    for entry in entries {
        let shown = name::shown(&entry.name);
        if still_big {
            let now = look_at(redis, &entry.name, asked.big).await?;
            if now.is_none_or(|now| !now.big || now.kind != entry.kind) {
                eprintln!("holdfast: {shown} is no longer what it was, and was left alone");
                deleted.push(Deleted { entry, removal: None });
                continue;
            }
        }
        if is_the_shops(asked, &entry.name) {
            eprintln!("holdfast: {shown} belongs to the shop; it goes because of --force");
        }
        let (length, done) = (entry.length.unwrap_or(1), deleted.len());
        let drawn = |gone| drawing::going(&shown, gone, length);
        let removal = remove(redis, &entry.name, asked.with, |gone| line.draw(|| drawn(gone)));
        let removal = removal.await;
        line.wipe();
        let removal =
            removal.with_context(|| format!("{done} removed, then stopped at {shown}"))?;
        if let Some(removal) = &removal {
            complain(&shown, removal);
        }
        deleted.push(Deleted { entry, removal });
    }
    Ok(deleted)
}

fn complain(shown: &str, removal: &Removal) {
    if removal.unlink_refused {
        eprintln!("holdfast: this Redis refuses UNLINK; {shown} was removed in batches");
    }
    if removal.left > 0 {
        eprintln!(
            "holdfast: {shown} still has {}: it grows while it is removed. Stop whoever writes to \
             it, or remove it at once, --with unlink",
            grouped(removal.left)
        );
    }
}

/// Returns whether no removal left elements; skipped keys count as gone.
fn is_all_gone(deleted: &[Deleted]) -> bool {
    deleted.iter().all(|one| one.removal.as_ref().is_none_or(|removal| removal.left == 0))
}

fn report(asked: &Asked, found: Option<&Found>, deleted: Option<&[Deleted]>) -> anyhow::Result<()> {
    let text = if asked.json {
        let report = Report { found, big_is_more_than: asked.big, deleted };
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        let found = found.map(|found| drawing::table(found, asked.big)).unwrap_or_default();
        let deleted = deleted.map(drawing::deleted).unwrap_or_default();
        match (found.is_empty(), deleted.is_empty()) {
            (false, false) => format!("{found}\n{deleted}"),
            _ => found + &deleted,
        }
    };
    Ok(output::print(&text)?)
}

/// A progress line on stderr, if stderr is a terminal.
struct Line {
    lively: bool,
    drawn: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        Self { lively: std::io::stderr().is_terminal(), drawn: None }
    }

    fn draw(&mut self, text: impl FnOnce() -> String) {
        if self.lively && self.drawn.is_none_or(|drawn| drawn.elapsed() > DRAW_EVERY) {
            self.drawn = Some(Instant::now());
            eprint!("\r\x1b[K{}", text());
            let _ = std::io::stderr().flush();
        }
    }

    fn wipe(&mut self) {
        if self.drawn.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
