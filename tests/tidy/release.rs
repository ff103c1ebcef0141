//! `script/release check` on a commit that is a release, and on commits that are not.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// What the checks read, beside the manifests of the crates.
const FILES: [&str; 5] = [
    "Cargo.toml",
    "Cargo.lock",
    "judge/Cargo.lock",
    "deploy/kubernetes/kustomization.yaml",
    "script/release",
];
const ADDRESS: &str = "https://github.com/shop/holdfast";
const TAG: &str = "v1.2.3";
const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- A shop.\n";

/// A program that can read neither the developer's settings nor the variables of the workflow or of
/// the git hook in which this test may run: with those of a hook, git would write to its
/// repository.
fn command(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT") {
            command.env_remove(name);
        }
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    command
}

fn git(folder: &Path, arguments: &str) {
    let user = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
    let output = command("git", folder).args(user).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "git {arguments}: {output:?}");
}

fn commit(folder: &Path) {
    git(folder, "add --all");
    git(folder, "commit --quiet --message=change");
}

/// A repository whose main could be tagged as a release: this one's files, under another version.
fn release() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut files: Vec<String> = FILES.map(str::to_owned).to_vec();
    for entry in fs::read_dir(super::root().join("crates")).unwrap() {
        files.push(format!("crates/{}/Cargo.toml", entry.unwrap().file_name().display()));
    }
    for file in files {
        let target = folder.path().join(&file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(super::root().join(file), target).unwrap();
    }
    fs::write(folder.path().join("CHANGELOG.md"), CHANGELOG).unwrap();

    let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    replace(folder.path(), "Cargo.toml", &version, "\"1.2.3\"");
    replace(
        folder.path(),
        "deploy/kubernetes/kustomization.yaml",
        version.trim_matches('"'),
        "1.2.3",
    );
    for lock in ["Cargo.lock", "judge/Cargo.lock"] {
        set_version_of_ours(&folder.path().join(lock), &version);
    }
    let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
    let address = manifest.lines().find(|line| line.starts_with("repository = ")).unwrap();
    replace(folder.path(), "Cargo.toml", address, &format!("repository = \"{ADDRESS}\""));

    git(folder.path(), "init --quiet --initial-branch=main");
    commit(folder.path());
    folder
}

fn set_version_of_ours(lock: &Path, version: &str) {
    let packages = fs::read_to_string(lock).unwrap();
    let packages: Vec<String> = packages
        .split("\n\n")
        .map(|package| {
            let is_ours = package.contains("name = \"holdfast");
            if is_ours { package.replace(version, "\"1.2.3\"") } else { package.to_owned() }
        })
        .collect();
    fs::write(lock, packages.join("\n\n")).unwrap();
}

fn replace(folder: &Path, file: &str, from: &str, to: &str) {
    let path = folder.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// Whether the check passed, and what it printed.
fn run(check: &mut Command) -> (bool, String) {
    let output = check.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn check(folder: &Path, tag: &[&str]) -> (bool, String) {
    run(command(folder.join("script/release"), folder).arg("check").args(tag))
}

#[test]
fn tagged_commit_of_main_can_be_released() {
    let folder = release();
    git(folder.path(), &format!("tag {TAG}"));
    let (passed, printed) = check(folder.path(), &[TAG]);
    assert!(passed && printed.contains("can be released as v1.2.3"), "{printed}");

    let notes = command(folder.path().join("script/release"), folder.path()).arg("notes").output();
    assert_eq!(String::from_utf8(notes.unwrap().stdout).unwrap(), "- A shop.\n");
}

/// What the check says, and the change of a commit of which it says so.
type Trouble = (&'static str, fn(&Path));

const TROUBLES: [Trouble; 12] = [
    ("the tag is v1.2.3, but Cargo.toml has the version 1.2.4", |folder| {
        for file in ["Cargo.toml", "deploy/kubernetes/kustomization.yaml"] {
            replace(folder, file, "1.2.3", "1.2.4");
        }
        for file in ["Cargo.lock", "judge/Cargo.lock"] {
            let lock = fs::read_to_string(folder.join(file)).unwrap();
            fs::write(folder.join(file), lock.replace("\"1.2.3\"", "\"1.2.4\"")).unwrap();
        }
        commit(folder);
    }),
    ("there are uncommitted changes", |folder| {
        fs::write(folder.join("new"), "").unwrap();
    }),
    ("CHANGELOG.md has no `## [1.2.3] - YYYY-MM-DD`", |folder| {
        replace(folder, "CHANGELOG.md", "## [1.2.3]", "## [1.2.2]");
        commit(folder);
    }),
    ("CHANGELOG.md still has entries under [Unreleased]", |folder| {
        replace(folder, "CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n- A lab.\n");
        commit(folder);
    }),
    ("the section [1.2.3] of CHANGELOG.md is empty", |folder| {
        replace(folder, "CHANGELOG.md", "- A shop.\n", "");
        commit(folder);
    }),
    ("only X.Y.Z is released", |folder| {
        replace(folder, "Cargo.toml", "1.2.3", "1.2.3-rc.1");
        commit(folder);
    }),
    ("crates/holdfast-lock/Cargo.toml has a version of its own", |folder| {
        let manifest = "crates/holdfast-lock/Cargo.toml";
        replace(folder, manifest, "version.workspace = true", "version = \"1.2.3\"");
        commit(folder);
    }),
    ("judge/Cargo.lock is of another version than 1.2.3 (holdfast-lock 1.0.0)", |folder| {
        let (ours, other) =
            ("\"holdfast-lock\"\nversion = \"1.2.3\"", "\"holdfast-lock\"\nversion = \"1.0.0\"");
        replace(folder, "judge/Cargo.lock", ours, other);
        commit(folder);
    }),
    ("kustomization.yaml has another `newTag` than 1.2.3", |folder| {
        replace(folder, "deploy/kubernetes/kustomization.yaml", "1.2.3", "1.2.2");
        commit(folder);
    }),
    ("v1.2.3 is on", |folder| {
        git(folder, &format!("tag {TAG}"));
        fs::write(folder.join("new"), "").unwrap();
        commit(folder);
    }),
    ("this commit is not on main", |folder| {
        git(folder, "switch --quiet --create side");
        fs::write(folder.join("new"), "").unwrap();
        commit(folder);
    }),
    ("Cargo.toml does not say where the repository is", |folder| {
        replace(folder, "Cargo.toml", ADDRESS, "https://github.com/OWNER/holdfast");
        commit(folder);
    }),
];

#[test]
fn other_commits_can_not_be_released() {
    for (said, change) in TROUBLES {
        let folder = release();
        change(folder.path());
        let (passed, printed) = check(folder.path(), &[TAG]);
        assert!(!passed && printed.contains(said), "expected: {said}; printed: {printed}");
    }
}

/// Until the tag, the entries are under [Unreleased].
#[test]
fn commit_without_a_tag_can_become_a_release() {
    let folder = release();
    replace(folder.path(), "CHANGELOG.md", "\n## [1.2.3] - 2026-01-31\n", "");
    commit(folder.path());
    let (passed, printed) = check(folder.path(), &[]);
    assert!(passed && printed.contains("no [1.2.3] yet"), "{printed}");

    replace(folder.path(), "CHANGELOG.md", "- A shop.\n", "");
    commit(folder.path());
    let (passed, printed) = check(folder.path(), &[]);
    assert!(!passed && printed.contains("neither [1.2.3] nor [Unreleased]"), "{printed}");
}

/// As `actions/checkout` makes it: one commit, and no branch of the remote.
#[test]
fn clone_without_history_can_not_be_released() {
    let folder = release();
    let clone = TempDir::new().unwrap();
    git(clone.path(), "init --quiet --initial-branch=other");
    let origin = format!("fetch --quiet --depth=1 file://{} main", folder.path().display());
    git(clone.path(), &origin);
    git(clone.path(), "checkout --quiet --detach FETCH_HEAD");

    let (passed, printed) = check(clone.path(), &[]);
    assert!(passed, "{printed}");
    let (passed, printed) = check(clone.path(), &[TAG]);
    assert!(!passed && printed.contains("there is no main in this clone"), "{printed}");
}

/// With stand-ins for GitHub's `gh`, and for `curl` and `cargo`, which ask the registries.
#[test]
fn workflow_stops_without_ci_and_for_what_is_published() {
    let folder = release();
    let tools = TempDir::new().unwrap();
    let says = |passed_runs: &str, page_is_draft: &str, wheel_status: &str, cargo: &str| {
        for (tool, script) in [
            (
                "gh",
                format!("case $1 in run) echo {passed_runs} ;; *) echo {page_is_draft} ;; esac"),
            ),
            (
                "curl",
                format!("case $* in */holdfast-lab/1.2.3/json) printf {wheel_status} ;; esac"),
            ),
            ("cargo", cargo.to_owned()),
        ] {
            let path = tools.path().join(tool);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
        run(command(folder.path().join("script/release"), folder.path())
            .arg("check")
            .env("PATH", path)
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_REF_TYPE", "tag")
            .env("GITHUB_REF_NAME", TAG)
            .env("GITHUB_SERVER_URL", "https://github.com")
            .env("GITHUB_REPOSITORY", "shop/holdfast"))
    };

    let no_crate = "echo 'error: could not find `holdfast-lock@1.2.3`' >&2; exit 101";
    for page_is_draft in ["", "true"] {
        let (passed, printed) = says("1", page_is_draft, "404", no_crate);
        assert!(passed, "{printed}");
    }

    let published = "1.2.3 is published already (the release page, the wheel, the crate)";
    for (answers, said) in [
        (("0", "", "404", no_crate), "CI has not passed"),
        (("1", "false", "200", "exit 0"), published),
        (("1", "", "503", no_crate), "PyPI answers 503"),
        (("1", "", "404", "echo 'no network' >&2; exit 101"), "does not answer: no network"),
    ] {
        let (runs, page_is_draft, wheel_status, cargo) = answers;
        let (passed, printed) = says(runs, page_is_draft, wheel_status, cargo);
        assert!(!passed && printed.contains(said), "expected: {said}; printed: {printed}");
    }
}

/// Also when it was started on a tag, which GitHub offers.
#[test]
fn workflow_started_by_hand_publishes_nothing() {
    let folder = release();
    for part in ["image", "crate", "page"] {
        let (passed, printed) = run(command(folder.path().join("script/release"), folder.path())
            .args(["publish", part])
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_EVENT_NAME", "workflow_dispatch")
            .env("GITHUB_REF_TYPE", "tag")
            .env("GITHUB_REF_NAME", TAG)
            .env("PATH", "/usr/bin:/bin"));
        assert!(!passed && printed.contains("push the tag v1.2.3"), "{part}: {printed}");
    }
}
