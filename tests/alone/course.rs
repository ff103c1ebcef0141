//! `holdfast course`: a new folder, mistakes of a learner, and the first levels.
//!
//! All levels, languages and seeds: `script/test-course`. Needs Postgres, Redis and Python 3.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::judge::command::JudgeRun;
use crate::{SharedMachine, share_machine};

struct Learner {
    folder: PathBuf,
    lock_file: &'static str,
    _temporary: TempDir,
    _machine: SharedMachine,
}

impl Learner {
    fn new() -> Self {
        Self::with("python", "lock.py")
    }

    /// Makes a folder whose name has a space.
    fn with(language: &str, lock_file: &'static str) -> Self {
        let machine = share_machine();
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("my lock");
        let made = course(&["new", language, folder.to_str().unwrap()]);
        assert_eq!(made.status.code(), Some(0), "{made:?}");
        Self { folder, lock_file, _temporary: temporary, _machine: machine }
    }

    fn write_lock(&self, code: &str) {
        fs::write(self.folder.join(self.lock_file), code).unwrap();
    }

    fn take_solution(&self, level: u32) {
        // As an editor of Windows stores it.
        self.write_lock(&solution(level).replace('\n', "\r\n"));
    }

    /// Returns exit code, stdout and stderr.
    fn check(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let folder = self.folder.to_str().unwrap();
        let output = course(&[&["check", folder, "--seed", "7"], options].concat());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// Returns stderr of a check that could not be judged.
    fn refused(&self) -> String {
        let (code, stdout, stderr) = self.check(&[]);
        assert_eq!(code, Some(2), "{stdout}{stderr}");
        stderr
    }

    fn progress(&self) -> Value {
        let json = fs::read_to_string(self.folder.join(".course.json")).unwrap();
        serde_json::from_str(&json).unwrap()
    }
}

fn solution(level: u32) -> String {
    let solutions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/course/python");
    fs::read_to_string(solutions.join(format!("level_{level}.py"))).unwrap()
}

fn course(arguments: &[&str]) -> Output {
    course_command(arguments).output().unwrap()
}

fn course_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("course").args(arguments).env("LC_ALL", "C.UTF-8");
    // Of whoever compiles these tests with lints.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

/// Returns the rules that do not hold, each with its fault.
fn broken(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter_map(|line| line.trim().strip_prefix("✗ "));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// At once: their clients mostly sleep, and a level of three lasts no longer than one of two. A
/// level also has the rules of those below.
#[test]
fn each_solution_fails_the_next_level() {
    thread::scope(|scope| {
        scope.spawn(first_solution_passes);
        scope.spawn(first_solution_fails);
        scope.spawn(second_solution_fails);
        scope.spawn(third_solution_passes);
        scope.spawn(error_of_release_is_quoted);
    });
}

fn first_solution_passes() {
    let learner = Learner::new();
    learner.take_solution(1);
    let (code, stdout, stderr) = learner.check(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("Next: Level 2 of 8"), "{stdout}");
    let progress = learner.progress();
    assert_eq!((&progress["level"], progress["checks"].as_array().unwrap().len()), (&2.into(), 1));
}

fn first_solution_fails() {
    let learner = Learner::new();
    let progress = learner.folder.join(".course.json");
    let passed = fs::read_to_string(&progress).unwrap().replace("\"level\": 1", "\"level\": 2");
    fs::write(&progress, passed).unwrap();
    learner.take_solution(1);
    let (code, stdout, stderr) = learner.check(&[]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(
        broken(&stdout)[0].starts_with("kill-holder granted again within 1,000 ms"),
        "{stdout}"
    );
    assert!(stdout.contains("Hint 1 of 2") && !stdout.contains("Hint 2"), "{stdout}");
    let more = course(&["check", learner.folder.to_str().unwrap(), "--hint"]);
    let more = String::from_utf8(more.stdout).unwrap();
    assert!(more.starts_with("Hint 2 of 2"), "the first one was shown: {more}");
    assert!(stdout.contains("keys left in Redis"), "why nobody got it: {stdout}");
    let progress = learner.progress();
    assert_eq!((&progress["level"], progress["checks"].as_array().unwrap().len()), (&2.into(), 1));
    assert!(fs::read_to_string(learner.folder.join("check.html")).unwrap().contains("kill-holder"));
}

/// Not what follows from it: that the lock is held too little, for want of releases.
fn error_of_release_is_quoted() {
    let learner = Learner::new();
    let solution = solution(1).replace("redis(\"DEL\", key)", "redis(\"DELETE\", key)");
    learner.write_lock(&solution);
    let (code, stdout, stderr) = learner.check(&[]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("acquire or release ended with an error"), "{stdout}");
    assert!(stdout.contains("RuntimeError: ERR unknown command 'DELETE'"), "{stdout}");
    assert!(stdout.contains("lock.py, line") && !stdout.contains("Hint"), "{stdout}");
    assert!(!broken(&stdout).iter().any(|rule| rule.contains("commands")), "it pauses: {stdout}");
    let first = course(&["check", learner.folder.to_str().unwrap(), "--hint"]);
    let first = String::from_utf8(first.stdout).unwrap();
    assert!(first.starts_with("Hint 1 of 2"), "none was shown: {first}");
}

fn second_solution_fails() {
    let learner = Learner::new();
    learner.take_solution(2);
    let (code, stdout, stderr) = learner.check(&["--level", "3"]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(broken(&stdout)[0].starts_with("long-work no “ok” for a lost lock"), "{stdout}");
    let (_, story) = stdout.split_once("What happened, in order").unwrap();
    for part in ["reaches the end of its lease", "has the lock", "releases the lock"] {
        assert!(story.contains(part), "the two requests are listed: {stdout}");
    }
    let progress = learner.progress();
    assert_eq!((&progress["level"], &progress["checks"]), (&1.into(), &Value::Array(Vec::new())));
}

fn third_solution_passes() {
    let learner = Learner::new();
    // As at the levels with a fence, which does not matter here.
    let written = "    print('released', file=__import__('sys').stderr)\n    return redis(\"EVAL\"";
    let solution = solution(3).replace("    return token", "    return token, 1");
    learner.write_lock(&solution.replace("    return redis(\"EVAL\"", written));
    let (code, stdout, stderr) = learner.check(&["--level", "3"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("Written to stderr") && stdout.contains("\n  released\n"), "{stdout}");
    let page = fs::read_to_string(learner.folder.join("check.html")).unwrap();
    assert!(page.contains("<h1>Level 3 of 8"), "the page has the verdict of the course");
    assert!(!page.contains("Loses updates under"), "and no other");
}

#[test]
fn mistakes_and_cheats_are_told_what_they_are() {
    let frame = |line: &str| {
        let code = "from holdfast_course import redis\ndef acquire(key, wait_s, ttl_ms):\n    ";
        format!("{code}{line}\n    pass\ndef release(key, token):\n    return True\n")
    };
    // What needs a server while it is loaded is no mistake.
    let asks = frame("").replace("def acquire", "redis('PING')\ndef acquire");
    // Each also has to be the only reason: none of them is judged.
    let mistakes = [
        (asks, "acquire granted nothing"),
        (frame("print('here')"), "lock.py, line 3: it prints 'here' to stdout"),
        (frame("redis('SET', key"), "lock.py, line 3: '(' was never closed"),
        ("acquire = redis\n".to_owned(), "lock.py, line 1: NameError"),
        (frame("return key + 1"), "lock.py, line 3: TypeError"),
        (frame("import redys"), "line 3: it imports redys, which is not installed: python3 -m pip"),
    ];
    let check = |(code, message): (String, &str)| {
        let learner = Learner::new();
        learner.write_lock(&code);
        let stderr = learner.refused();
        assert!(stderr.contains(message), "{code}: {stderr}");
        assert!(!stderr.contains("exit status"), "{code}: the judge's own words: {stderr}");
        assert_eq!(learner.progress()["checks"].as_array().unwrap().len(), 0);
    };
    let check_cheat = || {
        let learner = Learner::new();
        learner.write_lock(&frame("return 'mine'"));
        let (code, stdout, stderr) = learner.check(&[]);
        assert_eq!(code, Some(1), "{stdout}{stderr}");
        let broken = broken(&stdout);
        assert!(broken.iter().any(|rule| rule.starts_with("none nothing lost")), "{stdout}");
        assert!(stdout.contains("These functions send Redis no command"), "{stdout}");
    };
    let check_file = || {
        let learner = Learner::new();
        let lock = fs::read_to_string("tests/course/file_lock.py").unwrap();
        learner.write_lock(&lock);
        let (code, stdout, stderr) = learner.check(&[]);
        assert_eq!(code, Some(1), "{stdout}{stderr}");
        let store = "none clients of other servers are not excluded only one was granted the lock";
        assert_eq!(broken(&stdout), [store], "{stdout}");
        assert!(stdout.contains("a file, a socket or a variable of this machine"), "{stdout}");
    };
    // At once, as none measures a time.
    thread::scope(|scope| {
        for mistake in mistakes {
            scope.spawn(move || check(mistake));
        }
        scope.spawn(check_cheat);
        scope.spawn(check_file);
    });
}

/// What a check needs and does not find is named before anything is started.
#[test]
fn missing_part_is_told_how_to_get_it() {
    let programs = tempfile::tempdir().unwrap();
    // As of a version manager that has no version to run.
    let cargo = programs.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();

    let languages = [
        ("python", "lock.py", "python3 is missing: https://www.python.org"),
        ("javascript", "lock.js", "node is missing: https://nodejs.org"),
        ("rust", "src/lock.rs", "cargo is missing: https://rustup.rs"),
    ];
    for (language, file, message) in languages {
        let learner = Learner::with(language, file);
        let folder = learner.folder.to_str().unwrap();
        let mut check = course_command(&["check", folder]);
        let output = check.env("PATH", programs.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(message), "{output:?}");

        if language == "rust" {
            learner.write_lock("use redys::Client;\n");
            let stderr = learner.refused();
            let manifest = fs::canonicalize(learner.folder.join("Cargo.toml")).unwrap();
            let add = format!("cargo add --manifest-path '{}' redys", manifest.display());
            assert!(stderr.contains("cargo could not compile src/lock.rs"), "{stderr}");
            assert!(stderr.contains(&add), "{stderr}");
        }
        fs::remove_file(learner.folder.join(file)).unwrap();
        let stderr = learner.refused();
        assert!(stderr.contains(&format!("{file} is missing in")), "{stderr}");
    }
}

#[test]
fn interrupted_check_leaves_nothing_behind() {
    let learner = Learner::new();
    learner.take_solution(1);
    let progress = fs::read(learner.folder.join(".course.json")).unwrap();
    let names = || {
        let entries = fs::read_dir(&learner.folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let files = names();

    let run = JudgeRun::start_check(&learner.folder);
    run.wait_for_adapters();
    run.send_to_group(Signal::INT);
    let end = run.finish();
    assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{}", end.stderr);
    assert!(end.stderr.contains("interrupted"), "{}", end.stderr);
    assert_eq!(fs::read(learner.folder.join(".course.json")).unwrap(), progress);
    assert_eq!(names(), files);
    // And the folder is free again.
    assert!(course(&["status", learner.folder.to_str().unwrap()]).status.success());
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

/// It arrives when `acquire` has made its last call of a server, and returns the lock.
#[test]
fn late_cancellation_does_not_end_the_release() {
    let learner = Learner::new();
    learner.write_lock(
        "import os, time\nfrom holdfast_course import sleep\n\
         def acquire(key, wait_s, ttl_ms):\n\
         \x20   while not os.path.exists(__file__ + '.go'):\n\
         \x20       time.sleep(0.01)\n\
         \x20   return 'mine'\n\
         def release(key, token):\n\
         \x20   sleep(0)\n\
         \x20   return True\n",
    );
    let mut adapter = Command::new("python3")
        .args(["-B", "holdfast_course.py"])
        .current_dir(&learner.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut requests = adapter.stdin.take().unwrap();
    let mut answers = BufReader::new(adapter.stdout.take().unwrap()).lines();
    let mut send = |request: Value| writeln!(requests, "{request}").unwrap();
    let mut receive = || serde_json::from_str::<Value>(&answers.next().unwrap().unwrap()).unwrap();

    let urls = ["redis://:x@127.0.0.1:1/0", "postgres://x:x@127.0.0.1:1/x"];
    send(json!({
        "id": 1, "op": "init", "ttl_ms": 500, "redis_url": urls[0], "database_url": urls[1],
    }));
    assert_eq!(receive()["ok"], true);
    send(json!({ "id": 2, "op": "acquire", "key": "a", "wait_ms": 5_000 }));
    send(json!({ "id": 3, "op": "cancel", "request": 2 }));
    assert_eq!(receive(), json!({ "id": 3, "ok": true }));
    fs::write(learner.folder.join("lock.py.go"), "").unwrap();
    let granted = receive();
    assert_eq!((&granted["id"], &granted["ok"]), (&2.into(), &true.into()));
    send(json!({ "id": 4, "op": "release", "key": "a", "lease": granted["lease"] }));
    assert_eq!(receive(), json!({ "id": 4, "ok": true }));
    drop(requests);
    adapter.wait().unwrap();
}
