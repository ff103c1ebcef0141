//! The adapters in `judge/`: their READMEs, the guide that shows one of them, and the page of the
//! judgements.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MAX_README_LINES: usize = 5;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The folders of `judge/` with a program to run.
fn adapters() -> Vec<PathBuf> {
    let folders = fs::read_dir(root().join("judge")).unwrap().map(|entry| entry.unwrap().path());
    let adapters: Vec<PathBuf> = folders.filter(|path| path.join("run").is_file()).collect();
    assert!(adapters.len() > 10, "the adapters were not found");
    adapters
}

#[test]
fn guide_shows_the_example_adapter() {
    let code = format!("```python\n{}```\n", read("judge/example-python/lock.py"));
    assert!(read("docs/JUDGE.md").contains(&code), "docs/JUDGE.md shows another text");
}

#[test]
fn adapters_say_what_they_judge() {
    for adapter in adapters() {
        let readme = read(adapter.join("README.md"));
        let lines = readme.lines().count();
        assert!(lines <= MAX_README_LINES, "{}: {lines} lines", adapter.display());
        assert!(readme.contains("\nDocumentation"), "{}: no documentation", adapter.display());
        let mode = fs::metadata(adapter.join("run")).unwrap().permissions().mode();
        assert!(mode & 0o111 != 0, "{}/run is not executable", adapter.display());
    }
}

/// `judge/setup` builds with `--locked`, which fails for a dependency that is not in the file.
#[test]
fn lock_file_of_the_adapters_has_the_dependencies_of_our_lock() {
    let manifest = read("crates/holdfast-lock/Cargo.toml");
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    let locked = read("judge/Cargo.lock");
    let (_, locked) = locked.split_once("name = \"holdfast-lock\"\n").unwrap();
    let (locked, _) = locked.split_once("\n]").unwrap();

    let required = dependencies.lines().filter(|line| !line.contains("optional = true"));
    let names =
        required.filter_map(|line| line.split(['.', ' ']).next()).filter(|it| !it.is_empty());
    let missing: Vec<_> = names.filter(|name| !locked.contains(&format!("\n \"{name}"))).collect();
    assert!(
        missing.is_empty(),
        "run `cargo update --workspace` in judge/: {missing:?} are missing"
    );
}

#[test]
fn judged_page_is_made_from_the_judgements() {
    let page = holdfast_judge::judged_page(root()).unwrap();
    let written = read("docs/JUDGED.md");
    let differing = page.lines().zip(written.lines()).find(|(one, other)| one != other);
    assert!(
        page == written,
        "run `holdfast judged`, docs/JUDGED.md has another text: {differing:?}"
    );
}
