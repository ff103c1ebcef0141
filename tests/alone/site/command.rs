//! What `holdfast site` refuses, and that an interrupted one changes nothing.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_testkit::program;
use rustix::process::{Pid, Signal, kill_process};

use super::EARLIER;
use crate::share_machine;

/// Runs `holdfast site`; returns whether it was successful, and its stderr.
fn site(arguments: &[&str], out: &Path) -> (bool, String) {
    let run = Command::new(program()).arg("site").arg(out).args(arguments).output().unwrap();
    (run.status.success(), String::from_utf8(run.stderr).unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn folder_with_other_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "<p>another site</p>").unwrap();
    let (is_made, why) = site(&[], folder.path());
    assert!(!is_made && why.contains("has index.html, which is not of a site"), "{why}");
    assert_eq!(names(folder.path()), ["index.html"]);

    // A site that its owner has put into a repository.
    fs::write(folder.path().join("index.html"), EARLIER).unwrap();
    fs::create_dir(folder.path().join(".git")).unwrap();
    let (is_made, why) = site(&[], folder.path());
    assert!(!is_made && why.contains("has .git, which is not of a site"), "{why}");
    assert_eq!(names(folder.path()), [".git", "index.html"]);

    let (is_made, why) = site(&[], &folder.path().join("index.html"));
    assert!(!is_made && why.contains("is not a folder"), "{why}");
}

#[test]
fn wrong_options_are_refused_before_a_shop_starts() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().to_str().unwrap();
    for (arguments, expected) in [
        (["--url", "example.org"], "an address such as https://"),
        (["--sources", elsewhere], "name the repository's folder with --sources"),
        (["--pglite", elsewhere], "no package of PGlite"),
    ] {
        let (is_made, why) = site(&arguments, &folder.path().join("site"));
        assert!(!is_made && why.contains(expected), "{arguments:?}: {why}");
        assert!(!why.contains("temporary shop"), "{arguments:?}: {why}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn interrupted_site_leaves_the_earlier_one() {
    let _machine = share_machine();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("site");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("index.html"), EARLIER).unwrap();

    let mut making =
        Command::new(program()).arg("site").arg(&out).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(making.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let started = lines.find(|line| line.contains("temporary shop in ")).unwrap();
    kill_process(Pid::from_child(&making), Signal::INT).unwrap();

    assert!(!making.wait().unwrap().success());
    let shop = started.split("temporary shop in ").nth(1).unwrap().trim_end_matches(" …");
    assert!(!Path::new(shop).exists(), "{shop} is left");
    assert_eq!(names(folder.path()), ["site"]);
    assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), EARLIER);
}
