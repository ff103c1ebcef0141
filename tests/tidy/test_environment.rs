//! Tests pass in any environment: Cargo starts them through `script/run-test`, which sets what they
//! need.

use std::fs;
use std::process::Command;

use super::root;

/// What a test would depend on: the mask of new files, ignored signals, open files, and variables.
const SHOW: &str = "umask; grep SigIgn /proc/self/status; ulimit -Sn; env";

/// Runs `program` as Cargo runs a test, from a shell with `hostile` settings. Returns its output.
fn run_test(hostile: &str, program: &str) -> String {
    let script = format!("{hostile}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(root().join("script/run-test"))
        .args([program, "-c", SHOW])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn tests_ignore_the_environment_they_are_started_in() {
    let folder = tempfile::tempdir().unwrap();
    let deps = folder.path().join("deps");
    fs::create_dir(&deps).unwrap();
    let test = deps.join("sh");
    std::os::unix::fs::symlink("/bin/sh", &test).unwrap();

    let hostile = "umask 077; trap '' HUP INT TERM; ulimit -Sn 64; \
        export LC_ALL=tr_TR.UTF-8 TZ=Asia/Kathmandu http_proxy=http://127.0.0.1:9 \
        HOLDFAST_LOCK=none HOLDFAST_TEST_SEED=7 DATABASE_URL=postgres://mine PGHOST=mine";
    let shown = run_test(hostile, test.to_str().unwrap());
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "0022");
    let ignored = u64::from_str_radix(lines[1].split_whitespace().last().unwrap(), 16).unwrap();
    // The upper half is of real-time signals, of which libc reserves some.
    assert_eq!(ignored & 0x7fff_ffff, 0, "{shown}");
    assert!(lines[2].parse::<u32>().unwrap() > 64, "{shown}");
    for present in ["LC_ALL=C.UTF-8", "TZ=UTC", "HOLDFAST_TEST_SEED=7"] {
        assert!(lines.contains(&present), "{present}: {shown}");
    }
    assert!(shown.contains("no_proxy=127.0.0.1,"), "{shown}");
    for absent in ["HOLDFAST_LOCK=", "DATABASE_URL=", "PGHOST="] {
        assert!(!shown.contains(absent), "{absent}: {shown}");
    }
}

/// `HOLDFAST_LOCK=none cargo run -- up` is started by the same runner.
#[test]
fn programs_that_are_no_tests_keep_their_environment() {
    let shown = run_test("umask 027; export HOLDFAST_LOCK=none", "/bin/sh");
    assert!(shown.starts_with("0027"), "{shown}");
    assert!(shown.contains("HOLDFAST_LOCK=none"), "{shown}");
}
