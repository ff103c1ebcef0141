//! `docs/JUDGED.md`: a row for each judgement that is kept in `docs/judged`, and for each judged
//! service, with links to their READMEs, which name the language and the server. `holdfast judged`
//! writes it, and a test compares it with what it would write.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;

use super::report::{Judgement, ViolationKind};

const PAGE: &str = include_str!("judged.md");
/// Names of the judgements of our locks begin so; they are the first.
const OURS: &str = "holdfast-lock";
/// How the verdict begins in the README of a judged service.
const VERDICTS: [&str; 2] = ["Sound: ", "Not sound: "];

#[derive(Debug, Args)]
pub struct JudgedArgs {
    /// Root of the repository
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Judgement to keep as docs/judged/NAME.json
    #[arg(long, value_name = "FILE", requires = "name")]
    add: Option<PathBuf>,
    /// Name of that judgement
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Options with which it was made
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    options: String,
}

/// A judgement that is kept.
#[derive(Debug)]
struct KeptJudgement {
    /// Name of its file.
    name: String,
    /// Its adapter's folder in `judge/`.
    folder: String,
    judgement: Judgement,
}

/// Keeps a judgement if asked for, and writes the page.
pub fn write_judged(args: &JudgedArgs) -> anyhow::Result<()> {
    if let (Some(result), Some(name)) = (&args.add, &args.name) {
        let stored = stored(&read(result)?, &args.options)?;
        write(&args.root.join(format!("docs/judged/{name}.json")), &stored)?;
    }
    write(&args.root.join("docs/JUDGED.md"), &judged_page(&args.root)?)
}

/// Returns the page of the repository at `root`.
pub fn judged_page(root: &Path) -> anyhow::Result<String> {
    let locks = judged_locks(root)?;
    let others = locks.iter().filter(|lock| !lock.is_ours());
    let others: BTreeSet<&str> = others.map(|lock| lock.folder.as_str()).collect();
    let services = judged_services(root)?;

    let lock_rows = locks.iter().map(|lock| lock_row(root, lock));
    let lock_rows: String = lock_rows.collect::<anyhow::Result<_>>()?;
    let service_rows = services.iter().map(|name| service_row(root, name));
    let service_rows: String = service_rows.collect::<anyhow::Result<_>>()?;

    Ok(PAGE
        .replace("{others}", &others.len().to_string())
        .replace("{shops}", &services.len().to_string())
        .replace("{ttl}", &distinct(&locks, |it| format!("{} ms", grouped(it.ttl_ms))))
        .replace("{days}", &distinct(&locks, |it| it.started_at.chars().take(10).collect()))
        .replace("{options}", &distinct(&locks, |it| it.options.clone()))
        .replace("{locks}\n", &lock_rows)
        .replace("{services}\n", &service_rows))
}

/// Returns a judgement as it is kept: with the events of the first lost update under each fault,
/// and a line per fault.
fn stored(result: &str, options: &str) -> anyhow::Result<String> {
    let mut judgement: Judgement = serde_json::from_str(result)?;
    options.clone_into(&mut judgement.options);
    for fault in &mut judgement.faults {
        let is_loss = |kind: &ViolationKind| *kind == ViolationKind::LostUpdate;
        let first = fault.violations.iter().position(|found| is_loss(&found.kind));
        for (index, violation) in fault.violations.iter_mut().enumerate() {
            if Some(index) != first {
                violation.events.clear();
            }
        }
    }
    let json = serde_json::to_string(&judgement)?;
    Ok(json.replace("{\"name\":", "\n{\"name\":") + "\n")
}

fn judged_locks(root: &Path) -> anyhow::Result<Vec<KeptJudgement>> {
    let folder = root.join("docs/judged");
    let entries = fs::read_dir(&folder);
    let entries = entries.with_context(|| format!("can't read {}", folder.display()))?;
    let mut locks = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let judgement = serde_json::from_str(&read(&path)?);
        let judgement = judgement.with_context(|| format!("{} is no judgement", path.display()))?;
        locks.push(KeptJudgement { folder: adapter_folder(root, &name)?, name, judgement });
    }

    ensure!(!locks.is_empty(), "{} has no judgement", folder.display());
    locks.sort_by_key(|lock| {
        (!lock.is_ours(), lock.judgement.adapter.name.to_lowercase(), lock.name.clone())
    });
    Ok(locks)
}

/// Returns the folder of an adapter: that of `holdfast-lock-owner` is `holdfast-lock`.
fn adapter_folder(root: &Path, name: &str) -> anyhow::Result<String> {
    let mut folder = name;
    while !root.join("judge").join(folder).join("run").is_file() {
        let (shorter, _) = folder.rsplit_once('-').with_context(|| {
            format!("docs/judged/{name}.json is of no adapter in {}", root.join("judge").display())
        })?;
        folder = shorter;
    }
    Ok(folder.to_owned())
}

impl KeptJudgement {
    fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }
}

/// Returns the names of the judged services; our own orders are judged by the tests.
fn judged_services(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let folders = fs::read_dir(root.join("judge/services")).context("can't list judge/services")?;
    let mut names = BTreeSet::new();
    for folder in folders {
        let folder = folder?;
        if folder.path().join("README.md").exists() {
            names.insert(folder.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Returns the different values that the judgements have.
fn distinct(locks: &[KeptJudgement], value: impl Fn(&Judgement) -> String) -> String {
    let values: BTreeSet<String> = locks.iter().map(|lock| value(&lock.judgement)).collect();
    values.into_iter().collect::<Vec<_>>().join(" or ")
}

fn lock_row(root: &Path, lock: &KeptJudgement) -> anyhow::Result<String> {
    let KeptJudgement { name, folder, judgement } = lock;
    let readme = readme(root, folder)?;
    let (_, language, server) = subject(&readme, folder)?;
    let statements = judgement.statements(Language::English);
    let verdict: Vec<String> = statements.into_iter().map(|statement| statement.text).collect();
    let lost = judgement.faults.iter().filter(|report| report.loses_updates());
    let lost: Vec<String> = lost.map(|report| format!("`{}`", report.name)).collect();

    Ok(table_row(&[
        &format!("[{}](../judge/{folder}/README.md)", judgement.adapter.name),
        language,
        server,
        &verdict.join(". "),
        &if lost.is_empty() { "–".to_owned() } else { lost.join(", ") },
        &format!("[JSON](judged/{name}.json)"),
    ]))
}

fn service_row(root: &Path, name: &str) -> anyhow::Result<String> {
    let folder = format!("services/{name}");
    let readme = readme(root, &folder)?;
    let (shop, language, server) = subject(&readme, &folder)?;
    let is_verdict = |line: &&str| VERDICTS.iter().any(|verdict| line.starts_with(verdict));
    let verdict = readme.lines().find(is_verdict);
    let verdict = verdict.with_context(|| format!("judge/{folder}/README.md has no verdict"))?;
    let (verdict, _) = verdict.split_once(". ").unwrap_or((verdict, ""));

    let link = format!("[{shop}](../judge/{folder}/README.md)");
    Ok(table_row(&[&link, language, server, verdict]))
}

fn table_row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn readme(root: &Path, folder: &str) -> anyhow::Result<String> {
    read(&root.join("judge").join(folder).join("README.md"))
}

/// Returns how a README begins below its title: what was judged, its language, and its server.
fn subject<'a>(readme: &'a str, folder: &str) -> anyhow::Result<(&'a str, &'a str, &'a str)> {
    let about = readme.lines().nth(2).and_then(|line| line.split_once(": "));
    let parts = about.and_then(|(about, _)| {
        let (rest, server) = about.rsplit_once(", ")?;
        let (what, language) = rest.rsplit_once(", ")?;
        Some((what, language, server))
    });
    parts.with_context(|| {
        format!("judge/{folder}/README.md must begin with NAME VERSION, LANGUAGE, SERVER: …")
    })
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}
