//! `docs/JUDGED.md`: the judgements that are kept in `docs/judged`, with what the READMEs of their
//! adapters say. `holdfast judged` writes it, and a test compares it with what it would write.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;

use super::columns::{Column, Figure};
use super::fault::Fault;
use super::report::{FaultReport, Judgement, ViolationKind};
use super::verdict::{Cell, Row};

const PAGE: &str = include_str!("judged.md");
/// Names of the judgements of our locks begin so; they are the first.
const OURS: &str = "holdfast-lock";

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
struct JudgedLock {
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
    let ttls: BTreeSet<u64> = locks.iter().map(|lock| lock.judgement.ttl_ms).collect();
    let ttls: Vec<String> = ttls.into_iter().map(|ttl_ms| duration(ttl_ms as f64)).collect();

    let mut described = BTreeSet::new();
    let mut sections = Vec::new();
    for lock in &locks {
        let about = match described.insert(&lock.folder) {
            true => about(root, &lock.folder)?,
            false => "As above.".to_owned(),
        };
        sections.push(section(lock, &about));
    }

    Ok(PAGE
        .replace("{others}", &others.len().to_string())
        .replace("{ttl}", &ttls.join(" or "))
        .replace("{updates}", &updates(&locks))
        .replace("{costs}", &costs(&locks))
        .replace("{locks}\n", &sections.join("\n"))
        .replace("{services}\n", &services(root)?))
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

fn judged_locks(root: &Path) -> anyhow::Result<Vec<JudgedLock>> {
    let folder = root.join("docs/judged");
    let entries = fs::read_dir(&folder);
    let entries = entries.with_context(|| format!("can't read {}", folder.display()))?;
    let mut locks = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let judgement = serde_json::from_str(&read(&path)?);
        let judgement = judgement.with_context(|| format!("{} is no judgement", path.display()))?;
        locks.push(JudgedLock { folder: adapter_folder(root, &name)?, name, judgement });
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

impl JudgedLock {
    fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }

    /// Returns the id that a renderer of Markdown gives to its title.
    fn anchor(&self) -> String {
        let name = self.judgement.adapter.name.to_lowercase();
        let kept = name.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    }
}

fn updates(locks: &[JudgedLock]) -> String {
    // A judgement of an earlier version has fewer.
    let mut faults: Vec<&str> = Vec::new();
    for report in locks.iter().flat_map(|lock| &lock.judgement.faults) {
        if !faults.contains(&report.name.as_str()) {
            faults.push(&report.name);
        }
    }

    let mut rows = Vec::new();
    for lock in locks {
        let judgement = &lock.judgement;
        let row = |name: String, row| {
            let cells = faults.iter().map(|fault| match judgement.report(fault) {
                Some(report) => format_cell(judgement.cell(report, row)),
                None => format_cell(Cell::NotRun),
            });
            [name].into_iter().chain(cells).collect::<Vec<_>>()
        };
        let name = format!("[{}](#{})", judgement.adapter.name, lock.anchor());
        rows.push(row(name, Row::WithoutFence));
        if judgement.adapter.fencing {
            rows.push(row("… with its fence".to_owned(), Row::WithFence));
        }
    }

    let heads = faults.iter().map(|fault| format!(" `{fault}` |")).collect::<String>();
    format!("| lock |{heads}\n|---{}|\n{}", "|---".repeat(faults.len()), table_rows(rows))
}

fn format_cell(cell: Cell) -> String {
    let text = match cell {
        Cell::NotRun => "–".to_owned(),
        Cell::Elsewhere => "○".to_owned(),
        Cell::FencesBack(back) => format!("{} fences back", grouped(back)),
        Cell::Updates { lost: 0, turns } => format!("ok {}", grouped(turns)),
        Cell::Updates { lost, .. } => lost.to_string(),
        Cell::Runs { lost: 0, runs, turns } => format!("ok {} ({runs} runs)", grouped(turns)),
        Cell::Runs { lost, runs, .. } => format!("{lost} of {runs}"),
    };
    if cell.is_loss() { format!("**{text}**") } else { text }
}

fn costs(locks: &[JudgedLock]) -> String {
    let rows = locks.iter().filter_map(|JudgedLock { judgement, .. }| {
        let none = judgement.report(Fault::Undisturbed.name())?;
        let kill = judgement.report(Fault::KillHolder.name()).filter(|kill| kill.ran);
        let starved = judgement.faults.iter().map(|report| report.waiters_starved).max();
        let commands = format!("{:.1}", none.redis_commands);
        Some(vec![
            judgement.adapter.name.clone(),
            format!("{:.0}%", 100.0 * none.held_share),
            duration(none.wait_p50_ms),
            duration(none.wait_p99_ms),
            format!("{:.1}", none.wait_ratio),
            format!("{:.2}", none.jain),
            if judgement.uses_redis() { commands } else { "○".to_owned() },
            kill.map_or_else(|| "–".to_owned(), |kill| duration(kill.blocked_ms_max as f64)),
            starved.unwrap_or(0).to_string(),
        ])
    });
    table_rows(rows)
}

fn table_rows(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    rows.into_iter().map(|row| format!("| {} |\n", row.join(" | "))).collect()
}

fn duration(ms: f64) -> String {
    if ms >= 1_000.0 { format!("{:.1} s", ms / 1_000.0) } else { format!("{ms:.0} ms") }
}

fn section(lock: &JudgedLock, about: &str) -> String {
    let JudgedLock { name, folder, judgement } = lock;
    let day = judgement.started_at.get(..10).unwrap_or_default();
    let options = match judgement.options.as_str() {
        "" => String::new(),
        options => format!(", with `{options}`"),
    };
    let statements = judgement.statements(Language::English);
    let statements = statements.into_iter().map(|statement| statement.text);
    let said = statements.chain(judgement.notes(Language::English));
    let statements: Vec<String> = said.map(|text| text + ".").collect();
    format!(
        "### {}\n\n{about}\n\nJudged {day}, seed {}{options}: [adapter](../judge/{folder}), \
         [judgement](judged/{name}.json).\n\n{}\n\n{}\n",
        judgement.adapter.name,
        judgement.seed,
        statements.join(" "),
        findings(judgement).join("\n"),
    )
}

/// Returns what was found, a line each.
fn findings(judgement: &Judgement) -> Vec<String> {
    let mut lines: Vec<String> = judgement.faults.iter().flat_map(findings_under).collect();

    let counted = [
        (Column::Release, "Releases were answered *ok* although another client held the lock"),
        (Column::Fence, "Grants had a fence that was not above all earlier ones"),
        (Column::Busy, "Answers were *busy* or *timeout* while Redis was away"),
        (Column::Refused, "Turns that the fence refused"),
    ];
    for (column, what) in counted {
        let ran = judgement.faults.iter().filter(|report| report.ran);
        let under = ran.filter_map(|report| match column.figure(report) {
            Figure::Count(count @ 1..) => Some(format!("{count} under `{}`", report.name)),
            _ => None,
        });
        let under: Vec<String> = under.collect();
        if !under.is_empty() {
            lines.push(format!("- {what}: {}.", under.join(", ")));
        }
    }

    if lines.is_empty() {
        lines.push("- Nothing was found.".to_owned());
    }
    lines
}

fn findings_under(report: &FaultReport) -> Vec<String> {
    let name = &report.name;
    let sentence = |kind: ViolationKind| {
        let found = report.violations.iter().find(|found| found.kind == kind)?;
        Some(format!("{}.", found.text.trim_end_matches('.')))
    };
    let mut lines = Vec::new();

    if let Some(why_not) = report.why_not.as_ref().filter(|_| !report.ran) {
        lines.push(format!("- `{name}` did not run: {why_not}."));
    } else if let Some(text) = sentence(ViolationKind::LostUpdate) {
        let seed = report.repeats.map(|repeats| format!(" with the seed {}", repeats.run_seed));
        let (shown, lost) = (seed.unwrap_or_default(), report.lost_updates);
        lines.push(format!("- `{name}`{shown}, {lost} lost: {text}"));
    }
    if let Some(text) = sentence(ViolationKind::LostWithFence) {
        let lost = report.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
        lines.push(format!("- `{name}`, {lost} lost despite the fence: {text}"));
    }
    for kind in [ViolationKind::Blocked, ViolationKind::Starved, ViolationKind::LeftoverKey] {
        let what = kind.name().replace('-', " ");
        lines.extend(sentence(kind).map(|text| format!("- `{name}`, {what}: {text}")));
    }
    lines
}

/// Returns the README of an adapter without its title. Its links begin at the root of the
/// repository, and lead from `docs/` here.
fn about(root: &Path, folder: &str) -> anyhow::Result<String> {
    let readme = read(&root.join("judge").join(folder).join("README.md"))?;
    let text = readme.split_once('\n').map_or("", |(_, text)| text).trim();
    Ok(text.replace("](../../docs/", "](").replace("](../../", "](../"))
}

/// Returns what the READMEs of the judged services say.
fn services(root: &Path) -> anyhow::Result<String> {
    let folders = fs::read_dir(root.join("judge/services")).context("can't list judge/services")?;
    let mut names = BTreeSet::new();
    for folder in folders {
        names.insert(folder?.file_name().to_string_lossy().into_owned());
    }

    let mut sections = Vec::new();
    for name in names {
        let folder = format!("services/{name}");
        // Our own orders are judged by the tests.
        if root.join("judge").join(&folder).join("README.md").exists() {
            sections.push(format!("### {name}\n\n{}\n", about(root, &folder)?));
        }
    }
    Ok(sections.join("\n"))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}
