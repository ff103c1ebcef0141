//! `holdfast bench` as a user runs it: a table, its JSON, and no process or folder left behind. The
//! values are not checked, only that they exist, and that an arm with a failed audit has none.
//!
//! Needs Postgres and Redis installed (script/test installs them).

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::share_machine;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The folder of its shop, from its output.
fn folder(said: &str) -> &Path {
    let rest = said.split_once("a temporary shop in ").expect("the folder is printed").1;
    Path::new(rest.split_once(" …").expect("the folder is printed").0)
}

fn is_a_spread(value: &Value) -> bool {
    ["min", "median", "max"].iter().all(|part| value[part].as_f64().is_some_and(|n| n >= 0.0))
}

#[test]
fn only_sound_arms_have_measurements() {
    let _machine = share_machine();
    let files = tempfile::tempdir().unwrap();
    let (json, svg) = (files.path().join("b.json"), files.path().join("b.svg"));
    let output = bench(&["--rounds", "1", "--seconds", "0.5", "--connections", "8"])
        .args(["--only", "none,row-lock,owner", "--json"])
        .arg(&json)
        .arg("--svg")
        .arg(&svg)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(!folder(&said).exists(), "its shop is removed");

    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let names = |list: &Value, field: &str| -> Vec<String> {
        let all = list.as_array().unwrap().iter();
        all.map(|one| one[field].as_str().unwrap().to_owned()).collect()
    };
    let runs = results["runs"].as_array().unwrap();
    let hot = runs.iter().filter(|run| run["task"] == "hot" && run["clients"] == 8);
    let hot: Vec<&Value> = hot.collect();
    assert_eq!(hot.len(), 3, "{hot:#?}");
    for (run, strategy) in hot.iter().zip(["none", "owner", "row-lock"]) {
        assert_eq!(run["strategy"], strategy);
        let sound = strategy != "none";
        assert_eq!(run["audit"]["ok"], sound, "{run:#}");
        assert_eq!(run["audit"]["oversold"].as_i64().unwrap() > 0, !sound, "{run:#}");
        assert_eq!(run["rounds"].is_array(), sound, "{run:#}");
        for figure in
            ["per_second", "p50_ms", "p99_ms", "ratio_to_owner", "jain_clients", "redis_reads"]
        {
            assert_eq!(is_a_spread(&run[figure]), sound, "{figure}: {run:#}");
        }
    }
    assert!(runs.iter().any(|run| run["task"] == "no-op" && is_a_spread(&run["per_second"])));
    for field in ["date", "cores", "cpu", "postgres", "redis"] {
        assert!(!results["machine"][field].is_null(), "{field}");
    }
    assert_eq!(results["method"]["connections"], 8);

    let ids = names(&results["figures"], "id");
    // P9 to P11 are of the lock alone; P15 is of a replica that stops.
    let all = (1..=20).filter(|number| !(9..=11).contains(number) && *number != 15);
    let mut all = all.map(|number| format!("P{number}"));
    assert!(all.all(|id| ids.contains(&id)), "{ids:?}");

    let table = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("none").contains("oversold by"), "{table}");
    assert!(line("row-lock").ends_with("sound"), "{table}");
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("oversold by"), "{picture}");
}

#[test]
fn mixed_load_is_measured_alone() {
    let _machine = share_machine();
    let files = tempfile::tempdir().unwrap();
    let json = files.path().join("b.json");
    let output = bench(&["--arm", "mixed", "--rounds", "1", "--seconds", "1", "--goals", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");

    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let runs = results["runs"].as_array().unwrap();
    let divided: Vec<_> = runs.iter().map(|run| (&run["task"], &run["replicas"])).collect();
    assert_eq!(divided.len(), 5, "{divided:?}");
    for run in runs {
        assert_eq!(run["audit"]["ok"], true, "{run:#}");
        assert!(is_a_spread(&run["ratio_to_one_replica"]), "{run:#}");
        // Under such a load few commands are forwarded, perhaps none.
        let (returned, is_one) = (&run["returned"], run["replicas"] == 1);
        assert!(returned.is_null() || !is_one && is_a_spread(returned), "{run:#}");
    }

    let table = String::from_utf8(output.stdout).unwrap();
    for line in ["1 replica ", "3 replicas ", "3 replicas, by turns", "P20 "] {
        assert!(table.lines().any(|it| it.starts_with(line)), "{line}: {table}");
    }
    assert!(!table.contains("/ owner"), "{table}");
}

#[test]
fn interrupted_benchmark_leaves_nothing_behind() {
    let _machine = share_machine();
    let mut child: Child =
        bench(&["--rounds", "50", "--seconds", "0.2", "--connections", "4", "--only", "atomic"])
            // Of a shell that has them by chance: they are no order to use these servers.
            .envs([("DATABASE_URL", "postgres://127.0.0.1:1/theirs"), ("REDIS_URL", "redis://-")])
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let folder = folder(&first);
    assert!(lines.any(|line| line.unwrap().starts_with("round 1/")), "the first round begins");
    let pids = std::fs::read_to_string(folder.join("pids")).unwrap();
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut table = String::new();
    child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    assert!(!status.success() && table.is_empty(), "{status}: {table}");
    assert!(!folder.exists(), "{}", folder.display());
    let children = pids.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok());
    let children: Vec<Pid> = children.filter_map(Pid::from_raw).collect();
    assert!(children.len() >= 4, "Postgres, Redis and two replicas: {pids}");
    for pid in children {
        assert!(test_kill_process(pid).is_err(), "{pid:?} still runs: {pids}");
    }
}

#[test]
fn unknown_strategy_is_rejected_before_start() {
    let output = bench(&["--only", "owner,padlock"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(said.contains("padlock") && said.contains("row-lock"), "{said}");
    assert!(!said.contains("a temporary shop"), "{said}");
}
