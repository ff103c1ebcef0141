//! The history of a judgement, and `holdfast judge check`, which reads it.

use std::path::Path;
use std::process::Command;

use super::command::JudgeRun;

/// The verdict from the history alone is that of the judge.
#[test]
fn history_says_the_same_and_must_be_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let path = file.to_str().unwrap();
    let options = ["--faults", "pause,kill-holder", "--seconds", "0.5", "--ttl-ms", "400"];
    let more = ["--repeat", "2", "--history", path];
    let run = JudgeRun::start_with("fences-repeat", &options, &more).finish();
    assert_eq!(run.code, Some(1), "{}", run.stderr);

    let (code, checked) = check(&file);
    assert_eq!(code, Some(1), "{checked}");
    for line in checked.lines().skip(2).filter(|line| !line.is_empty()) {
        assert!(run.stdout.lines().any(|other| other.starts_with(line)), "{line}\n{}", run.stdout);
    }
    assert!(checked.contains("2 of 2") && checked.contains("Updates were lost under pause"));

    let history = std::fs::read_to_string(&file).unwrap();
    let last = history.trim_end().rfind('\n').unwrap() + 1;
    let write = history.find("\"version\":9").unwrap();
    let write = history[..write].rfind('\n').unwrap() + 1;
    let next = write + history[write..].find('\n').unwrap() + 1;
    let cases = [
        (history[..last].to_owned(), "has no line `finish`"),
        (history[..last - 5].to_owned(), "is truncated in line"),
        (history.replacen("\"history\":1", "\"history\":2", 1), "version 2; this holdfast reads"),
        ("{\"adapter\": 1}\n".to_owned(), "no history that `holdfast judge --history`"),
        (String::new(), "is empty"),
        // Without the answer to a write, and with another value.
        (history[..write].to_owned() + &history[next..], "without an answer"),
        (history.replacen("\"wrote\":999995", "\"wrote\":999994", 1), "did not take one unit"),
    ];
    for (text, why) in cases {
        std::fs::write(&file, text).unwrap();
        let (code, said) = check(&file);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(why), "{why}: {said}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(check(&file).1.contains("can't read"));
}

/// Runs `holdfast judge check`; returns its exit code, and what it printed.
fn check(file: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let output = command.args(["judge", "check"]).arg(file).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}
