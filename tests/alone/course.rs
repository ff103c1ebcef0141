//! `holdfast course`: a new folder, mistakes of a learner, and the first levels.
//!
//! All levels, languages and seeds: `script/test-course`. Needs Postgres, Redis and Python 3.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use tempfile::TempDir;

use crate::{SharedMachine, share_machine};

struct Learner {
    folder: PathBuf,
    _temporary: TempDir,
    _machine: SharedMachine,
}

impl Learner {
    /// Makes a folder whose name has a space.
    fn new() -> Self {
        let machine = share_machine();
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("my lock");
        let made = course(&["new", "python", folder.to_str().unwrap()]);
        assert_eq!(made.status.code(), Some(0), "{made:?}");
        Self { folder, _temporary: temporary, _machine: machine }
    }

    fn write_lock(&self, code: &str) {
        fs::write(self.folder.join("lock.py"), code).unwrap();
    }

    fn take_solution(&self, level: u32) {
        let solutions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/course/python");
        let solution = fs::read_to_string(solutions.join(format!("level_{level}.py"))).unwrap();
        // As an editor of Windows stores it.
        self.write_lock(&solution.replace('\n', "\r\n"));
    }

    /// Returns exit code, stdout and stderr.
    fn check(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let folder = self.folder.to_str().unwrap();
        let output = course(&[&["check", folder, "--seed", "7"], options].concat());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    fn progress(&self) -> Value {
        let json = fs::read_to_string(self.folder.join(".course.json")).unwrap();
        serde_json::from_str(&json).unwrap()
    }
}

fn course(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("course").args(arguments).env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// Returns the rules that do not hold, each with its fault.
fn broken(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter_map(|line| line.trim().strip_prefix("✗ "));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn each_solution_fails_the_next_level() {
    let learner = Learner::new();
    learner.take_solution(1);
    let (code, stdout, stderr) = learner.check(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("Next: Level 2 of 8"), "{stdout}");

    let (code, stdout, stderr) = learner.check(&[]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(
        broken(&stdout)[0].starts_with("kill-holder granted again within 1,000 ms"),
        "{stdout}"
    );
    assert!(stdout.contains("Hint 1 of 2") && !stdout.contains("Hint 2"), "{stdout}");
    assert!(stdout.contains("keys left in Redis"), "why nobody got it: {stdout}");
    let progress = learner.progress();
    assert_eq!((&progress["level"], progress["checks"].as_array().unwrap().len()), (&2.into(), 2));
    assert!(fs::read_to_string(learner.folder.join("check.html")).unwrap().contains("kill-holder"));

    learner.take_solution(2);
    let (code, stdout, stderr) = learner.check(&["--level", "3"]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(broken(&stdout)[0].starts_with("long-work no “ok” for a lost lock"), "{stdout}");
    let (_, story) = stdout.split_once("What happened, in order").unwrap();
    for part in ["reaches the end of its lease", "is granted the lock", "has released it"] {
        assert!(story.contains(part), "the two requests are listed: {stdout}");
    }
    assert_eq!(learner.progress(), progress, "a level that was chosen changes nothing");

    // As at the levels with a fence, which does not matter here.
    learner.take_solution(3);
    let solution = fs::read_to_string(learner.folder.join("lock.py")).unwrap();
    let written = "    print('released', file=__import__('sys').stderr)\n    return redis(\"EVAL\"";
    let solution = solution.replace("    return token", "    return token, 1");
    learner.write_lock(&solution.replace("    return redis(\"EVAL\"", written));
    let (code, stdout, stderr) = learner.check(&["--level", "3"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("Written to stderr") && stdout.contains("\n  released\n"), "{stdout}");
    let page = fs::read_to_string(learner.folder.join("check.html")).unwrap();
    assert!(page.contains("<h1>Level 3 of 8"), "the page has the verdict of the course");
    assert!(!page.contains("lost updates under"), "and no other");
}

#[test]
fn mistakes_of_a_learner_are_named() {
    let learner = Learner::new();
    // Each also has to be the only reason: none of them is judged.
    let mistakes = [
        ("", "acquire granted nothing"),
        ("print('here')", "lock.py, line 3: it prints 'here' to stdout"),
        ("redis('SET', key", "lock.py, line 3: '(' was never closed"),
        ("import redys", "lock.py, line 3: ModuleNotFoundError: No module named 'redys'"),
        ("return key + 1", "lock.py, line 3: TypeError"),
    ];
    for (line, message) in mistakes {
        let code = "from holdfast_course import redis\ndef acquire(key, wait_s, ttl_ms):\n    ";
        learner
            .write_lock(&format!("{code}{line}\n    pass\ndef release(key, token):\n    pass\n"));
        let (code, stdout, stderr) = learner.check(&[]);
        assert_eq!(code, Some(2), "{line}: {stdout}{stderr}");
        assert!(stderr.contains(message), "{line}: {stderr}");
        assert!(!stderr.contains("exit status"), "{line}: the judge's own words: {stderr}");
    }
    learner.write_lock("import redys\n");
    let (code, _, stderr) = learner.check(&[]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("python3 -m pip install redys"), "{stderr}");
    fs::remove_file(learner.folder.join("lock.py")).unwrap();
    let (_, _, stderr) = learner.check(&[]);
    assert!(stderr.contains("lock.py is missing in"), "{stderr}");
    assert_eq!(learner.progress()["checks"].as_array().unwrap().len(), 0);
}

#[test]
fn cheats_are_told_what_they_are() {
    let learner = Learner::new();
    learner.write_lock(
        "def acquire(key, wait_s, ttl_ms):\n    return 'mine'\n\
         def release(key, token):\n    return True\n",
    );
    let (code, stdout, stderr) = learner.check(&[]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(broken(&stdout).iter().any(|rule| rule.starts_with("none nothing lost")), "{stdout}");
    assert!(stdout.contains("These functions send Redis no command"), "{stdout}");
}

#[test]
fn folder_is_the_learners_own() {
    let learner = Learner::new();
    let folder = learner.folder.to_str().unwrap().to_owned();
    let again = course(&["new", "python", &folder]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"), "{again:?}");

    // Another check holds the folder.
    let other = fs::File::open(&learner.folder).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let (code, _, stderr) = learner.check(&[]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("another `holdfast course` works in"), "{stderr}");
    drop(other);

    for (json, message) in [("{", "is damaged"), ("{}", "is damaged")] {
        fs::write(learner.folder.join(".course.json"), json).unwrap();
        let (code, _, stderr) = learner.check(&[]);
        assert_eq!(code, Some(2));
        assert!(stderr.contains(message), "{stderr}");
    }
    fs::remove_file(learner.folder.join(".course.json")).unwrap();
    let (code, _, stderr) = learner.check(&[]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("is no folder of the course"), "{stderr}");
}
