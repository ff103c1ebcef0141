//! The rules that neither the compiler nor Cargo checks: who writes the shop's tables, what modules
//! of the program may use, length of lines and files, a header in every file, links in documents.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod adapters;
mod configuration;
mod cycles;
mod documents;
mod forms;
mod messages;
mod metrics;
mod public_api;
mod release;
mod row_locks;
mod saved;
mod test_environment;
mod times;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Statements that write the shop's tables.
const WRITES: [&str; 3] = ["insert into ", "update ", "delete from "];
/// The tables that only the store of `holdfast-shop` writes, and the statements of its strategies.
const TABLES: [&str; 12] = [
    "orders",
    "order_lines",
    "items",
    "accounts",
    "stock_ledger",
    "balance_ledger",
    "top_ups",
    "idempotency",
    "admin_log",
    "item_units",
    "unit_ledger",
    "unsettled_lines",
];
/// Files elsewhere that write one of them, or contain the text of it, and why.
const WRITES_ELSEWHERE: [(&str, &str, &str); 3] = [
    (
        "crates/holdfast-shop/src/users.rs",
        "insert into accounts",
        "a user is created with an account",
    ),
    (
        "src/bench/harness.rs",
        "delete from accounts",
        "deletes lab accounts between runs, in a shop of its own",
    ),
    (
        "src/bench/harness.rs",
        "update accounts",
        "resets accounts between runs, in a shop of its own",
    ),
];

/// Which dependencies of the program are kept to which of its modules; for the other crates, Cargo
/// sees to it.
const KEPT_TO: [(&str, &[&str]); 4] = [
    ("actix_web::", &["web", "app"]),
    ("askama", &["web", "app"]),
    ("sqlx::query", &["bench", "telemetry"]),
    ("redis::", &["rate_limit", "app", "bench"]),
];

/// The crates whose sources these rules are about, beside the program: all but the lock for
/// strangers and what is for tests only.
const CRATES: [&str; 6] = ["base", "story", "shop", "services", "lab", "judge"];

const LONGEST_LINE: usize = 100;
/// Without blank lines and comments, which are there to be read by.
const LONGEST_FILE: usize = 400;

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folders of sources: the program's, and those of [`CRATES`].
fn source_folders() -> Vec<PathBuf> {
    let mut folders = vec![root().join("src")];
    folders.extend(CRATES.map(|name| root().join(format!("crates/holdfast-{name}/src"))));
    folders
}

/// Every source file of the program and of [`CRATES`].
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    for folder in source_folders() {
        let files = rust_files(&folder);
        assert!(files.len() > 5, "the sources of {} were not found", folder.display());
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            sources.push((path, text));
        }
    }
    sources
}

/// The statements that stand in files of their own.
fn statement_files() -> Vec<(PathBuf, String)> {
    let mut folders = source_folders();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 5, "the statements in files were not found");
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn dependencies_are_used_only_in_their_modules() {
    for (path, text) in sources() {
        let Ok(inside) = path.strip_prefix(root().join("src")) else { continue };
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");

        for (needle, modules) in KEPT_TO {
            let found =
                text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
                    line.match_indices(needle).any(|(at, _)| {
                        let before = line[..at].chars().next_back();
                        let module_path =
                            line[..at].ends_with("lock::") || line[..at].ends_with("crate::");
                        !module_path && !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
                    })
                });
            assert!(
                !found || modules.contains(&module),
                "{} names {needle}, which is kept to {modules:?}",
                path.display()
            );
        }
    }
}

/// A file's text without its comments, in lower case, with single spaces.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let comment = if line.trim_start().starts_with("//") { Some(0) } else { line.find(" // ") };
        &line[..comment.unwrap_or(line.len())]
    });
    let words: Vec<String> = lines.flat_map(str::split_whitespace).map(str::to_lowercase).collect();
    words.join(" ")
}

/// The number of times that `word` occurs, and not as a part of another word.
fn count_word(text: &str, word: &str) -> usize {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let whole = text.match_indices(word).filter(|(at, _)| {
        !text[..*at].ends_with(inside) && !text[at + word.len()..].starts_with(inside)
    });
    whole.count()
}

/// The description of the API merges two schemas of the same name without an error.
#[test]
fn schema_names_are_unique() {
    let mut names = BTreeSet::new();
    for (path, text) in sources() {
        for derived in text.split("ToSchema").skip(1) {
            if !derived.starts_with([',', ')']) {
                continue;
            }
            let item = derived.split("struct ").next().unwrap_or("");
            let item = if item.contains("enum ") { "enum " } else { "struct " };
            let (attributes, declared) = derived.split_once(item).unwrap();
            let declared = attributes.split_once("schema(as = ").map_or(declared, |(_, name)| name);
            let end = declared.find(|c: char| !c.is_alphanumeric()).unwrap();
            assert!(
                names.insert(declared[..end].to_owned()),
                "{}: {}",
                relative(&path),
                &declared[..end]
            );
        }
    }
    assert!(names.contains("HeldLock") && names.contains("RestockRequest"));
}

#[test]
fn commands_are_synchronous() {
    let files = rust_files(&root().join("crates/holdfast-shop/src/command"));
    assert!(files.len() > 5, "the commands were not found");
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        assert!(count_word(&code(&text), "async") == 0, "{} is async", path.display());
    }
}

/// For the program of the tests of units, the compiler makes code of every public `async fn` and of
/// all that it calls, though no test calls it: with them it takes twice as long. Of methods it does
/// not.
#[test]
fn async_functions_of_the_program_are_not_public() {
    for path in rust_files(&root().join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let public = text.lines().find(|line| line.starts_with("pub async fn "));
        assert_eq!(public, None, "{}: make it pub(crate)", relative(&path));
    }
}

#[test]
fn only_the_store_writes_shop_tables() {
    let mut needed = BTreeSet::new();
    for (path, text) in sources().into_iter().chain(statement_files()) {
        let (file, code) = (relative(&path), code(&text));
        // A strategy with a data path has its own statements.
        let is_store = file.starts_with("crates/holdfast-shop/src/store/")
            || file.starts_with("crates/holdfast-shop/src/strategy/")
                && file.ends_with("/statements.rs");
        if is_store {
            continue;
        }
        for statement in WRITES.iter().flat_map(|verb| TABLES.map(|table| format!("{verb}{table}")))
        {
            if count_word(&code, &statement) > 0 {
                let known = WRITES_ELSEWHERE
                    .iter()
                    .position(|(exception, what, _)| *exception == file && *what == statement);
                let known = known.unwrap_or_else(|| {
                    panic!(
                        "{file}: {statement}: not in the store or in the statements of a strategy"
                    )
                });
                needed.insert(known);
            }
        }
    }
    for (number, (file, what, _)) in WRITES_ELSEWHERE.iter().enumerate() {
        assert!(needed.contains(&number), "{file}: {what} is not there: take it from the list");
    }
}

#[test]
fn every_file_has_header_and_bounded_length() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "crates"] {
        files.extend(rust_files(&root().join(folder)));
    }
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not say what it is for", path.display());
        let lines = text.lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines of code; split it", path.display());
        for (number, line) in text.lines().enumerate() {
            // The formatter sees to code, and leaves long strings (SQL, mostly) as they are.
            let length = line.chars().count();
            let comment = line.trim_start().starts_with("//");
            assert!(
                length <= LONGEST_LINE || !comment,
                "{}:{} has {length} columns",
                path.display(),
                number + 1
            );
        }
    }
}

/// Folders that are not compiled into the shop.
const NOT_COMPILED: [&str; 9] =
    ["deploy", "dist", "docs", "judge", "load", "script", "target", "tests", "wheel"];

#[test]
fn image_is_built_from_every_source_folder() {
    let root = root();
    let admitted = fs::read_to_string(root.join(".dockerignore")).unwrap();
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        let folder = entry.file_name().into_string().unwrap();
        if !entry.path().is_dir() || folder.starts_with('.') {
            continue;
        }
        let is_admitted = admitted.lines().any(|line| line == format!("!{folder}"));
        assert_ne!(is_admitted, NOT_COMPILED.contains(&folder.as_str()), "{folder}");
    }
}

/// CI compiles against a database; everybody else, and the image, from what is committed.
#[test]
fn builds_use_the_committed_queries() {
    let settings = fs::read_to_string(root().join(".cargo/config.toml")).unwrap();
    assert!(settings.lines().any(|line| line == "SQLX_OFFLINE = \"true\""), "{settings}");

    let admitted = fs::read_to_string(root().join(".dockerignore")).unwrap();
    for needed in ["!.cargo", "!.sqlx"] {
        assert!(admitted.lines().any(|line| line == needed), "{needed} is not in .dockerignore");
    }
}

/// A reader finds a room by its name: the map has every crate and its modules.
#[test]
fn map_lists_every_crate_and_module() {
    let map = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for folder in source_folders() {
        let library = fs::read_to_string(folder.join("lib.rs")).unwrap();
        let modules = library.lines().filter_map(|line| line.strip_prefix("pub mod "));
        for module in modules.map(|module| module.trim_end_matches(';')) {
            let place = relative(&folder);
            assert!(map.contains(&format!("`{module}`")), "{module} of {place} is not on the map");
        }
    }
}

/// README.md and the files of docs.
fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut documents = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
    documents
}

/// The links of a document to files, as label and target.
fn links(text: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    for (at, _) in text.match_indices("](") {
        let label = text[..at].rsplit('[').next().unwrap();
        let target = text[at + 2..].split([')', '#']).next().unwrap();
        if !target.is_empty() && !target.contains("://") {
            links.push((label.trim_matches('`'), target));
        }
    }
    links
}

#[test]
fn links_in_documents_resolve() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let name = relative(&document);
        let found = links(&text);
        assert!(name != "README.md" || found.len() > 4, "the README points to its files");
        for (label, target) in found {
            let path = document.parent().unwrap().join(target);
            assert!(path.exists(), "{name} points to {target}, which is not there");
            // A label in snake case is the name of a function in that file.
            let is_function = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if is_function && target.ends_with(".rs") {
                let source = fs::read_to_string(&path).unwrap();
                let function = format!("fn {label}(");
                assert!(source.contains(&function), "{name}: {target} has no {function}");
            }
        }
    }
}
