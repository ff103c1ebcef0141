//! `holdfast judge service` finds each wrong shop, clears the right ones, and leaves nothing.
//! Needs Postgres, Redis, and what `script/test-services --install` installs.

mod holdfast;
mod ledger;
mod misfits;
mod schedules;
mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::judge::command::{JudgeEnd, JudgeRun};
use crate::share_machine;

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alone/service/service.toml");
const SHOP_JS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alone/service/service-js.toml");
const BALANCES: [&str; 4] = ["oversold", "drift", "lost", "doubled"];

/// The folders of Python's programs and of the modules of Node.js that the shops need.
fn installed() -> (PathBuf, PathBuf) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let (python, modules) = (target.join("services/bin"), target.join("services-js/node_modules"));
    let is_installed = python.join("uvicorn").exists() && modules.exists();
    assert!(is_installed, "script/test-services --install was not run");
    (python, modules)
}

/// Starts a judgement of the service of a file; `mode` is that of the shops.
fn start(file: &Path, mode: &str, options: &[&str]) -> JudgeRun {
    start_in(None, file, mode, options)
}

fn start_in(folder: Option<&Path>, file: &Path, mode: &str, options: &[&str]) -> JudgeRun {
    let machine = share_machine();
    let (python, modules) = installed();
    let holdfast = Path::new(env!("CARGO_BIN_EXE_holdfast"));
    let programs = [&python, holdfast.parent().unwrap()].map(|it| it.display().to_string());
    let path = format!("{}:{}", programs.join(":"), std::env::var("PATH").unwrap());

    let mut judge = Command::new(holdfast);
    judge.args(["judge", "service"]).arg(file).args(["--seed", "7"]).args(options);
    judge.env("PATH", path).env("NODE_PATH", modules).env("MODE", mode);
    if let Some(folder) = folder {
        judge.current_dir(folder);
    }
    JudgeRun::watch(judge, machine)
}

fn judge(file: &str, mode: &str, faults: &str) -> JudgeEnd {
    start(Path::new(file), mode, &["--faults", faults, "--json", "-"]).finish()
}

/// A folder with the shop, whose file has another text somewhere.
fn changed_shop(text: &str, other: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read_to_string(SHOP).unwrap();
    assert!(file.contains(text), "{file}");
    fs::write(folder.path().join("service.toml"), file.replace(text, other)).unwrap();
    for name in ["schema.py", "shop.py"] {
        fs::copy(Path::new(SHOP).with_file_name(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn pass<'a>(judgement: &'a Value, name: &str) -> &'a Value {
    let passes = judgement["passes"].as_array().unwrap();
    let pass = passes.iter().find(|pass| pass["name"] == name);
    pass.unwrap_or_else(|| panic!("no report of {name}: {judgement:#}"))
}

/// The balances that are not 0.
fn found(pass: &Value) -> Vec<&'static str> {
    BALANCES.into_iter().filter(|balance| pass[balance].as_i64().unwrap() != 0).collect()
}

fn evidence(judgement: &Value) -> Vec<&Value> {
    let passes = judgement["passes"].as_array().unwrap().iter();
    passes.flat_map(|pass| pass["evidence"].as_array().unwrap()).collect()
}

/// Checks that two requests were shown, once, with the mistake that they have.
fn assert_shown(judgement: &Value, pattern: &str) {
    let [evidence] = evidence(judgement)[..] else { panic!("not once: {judgement:#}") };
    assert_eq!(evidence["pattern"], pattern, "{judgement:#}");
    assert!(!evidence["summary"].as_str().unwrap().is_empty(), "{evidence:#}");
    let statements = evidence["statements"].as_array().unwrap().iter();
    // One without a text is no statement: the instance was stopped or killed.
    let statements: Vec<_> = statements.filter(|it| it["sql"] != "").collect();
    assert!((2..=12).contains(&statements.len()), "{evidence:#}");
    let both = |what: &str| statements.iter().map(|it| it[what].as_u64()).collect::<BTreeSet<_>>();
    assert!(both("buyer").len() == 2 || both("instance").len() == 2, "{evidence:#}");
    let times = statements.iter().map(|it| it["sent_ms"].as_f64().unwrap());
    assert!(times.is_sorted(), "{evidence:#}");
}

/// Judges a shop that is wrong, and checks what each pass has found, and what is shown of it.
/// Returns the judgement.
fn assert_found(file: &str, mode: &str, pattern: &str, passes: &[(&str, &[&str])]) -> Value {
    let names = passes.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    let run = judge(file, mode, &names);
    assert_eq!(run.code, Some(1), "{mode}: {}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert_eq!(judgement["sound"], false);
    for (name, balances) in passes {
        let pass = pass(&judgement, name);
        assert_eq!(found(pass), *balances, "{mode}: {pass:#}");
        assert_eq!(pass["ran"], true, "{mode}: {pass:#}");
        assert_eq!(pass["lost_in"].as_u64() > Some(0), !balances.is_empty(), "{mode}: {pass:#}");
    }
    assert_shown(&judgement, pattern);
    judgement
}

const NOTHING: &[&str] = &[];

#[test]
fn overwritten_stock_is_found_without_a_fault() {
    let both: &[&str] = &["oversold", "drift"];
    let passes = [("control", NOTHING), ("none", both), ("gate", both), ("retry", both)];
    assert_found(SHOP, "read-then-write", "read-then-write", &passes);
}

#[test]
fn overwritten_stock_is_found_in_javascript() {
    let passes = [("control", NOTHING), ("gate", &["oversold", "drift"][..])];
    assert_found(SHOP_JS, "read-then-write", "read-then-write", &passes);
}

#[test]
fn check_before_a_decrement_is_found_at_the_gate() {
    let passes = [("control", NOTHING), ("gate", &["oversold"][..])];
    let judgement = assert_found(SHOP, "check-then-decrement", "check-then-decrement", &passes);
    assert_has_keys_of_the_contract(&judgement);
}

#[test]
fn missing_check_is_found_by_one_buyer_after_the_other() {
    assert_found(SHOP, "no-check", "no-check", &[("control", &["oversold"])]);
}

/// No statement names the table of the stock in a write.
#[test]
fn stock_that_the_database_writes_is_struck() {
    for (mode, pattern, passes) in [
        ("trigger", "check-then-decrement", &["gate", "restart", "slow-commit"][..]),
        ("function", "unknown", &["gate", "kill"][..]),
    ] {
        let run = judge(SHOP, mode, &passes.join(","));
        assert_eq!(run.code, Some(1), "{mode}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains("no statement names products in a write"), "{}", run.stderr);
        let judgement = run.judgement();
        assert_eq!(found(pass(&judgement, "control")), NOTHING, "{judgement:#}");
        assert_eq!(found(pass(&judgement, "gate")), ["oversold"], "{judgement:#}");
        for name in passes {
            let pass = pass(&judgement, name);
            assert_eq!(pass["ran"], true, "{mode}: {pass:#}");
            assert!(pass["hits"].as_u64() > Some(0), "{mode}: {pass:#}");
        }
        assert_shown(&judgement, pattern);
    }
}

/// Two orders that count what was sold overwrite nothing.
#[test]
fn count_before_an_insert_is_found_by_its_schedule() {
    let sold = "(select count(*) from orders where product_id = '{item}')";
    let folder = changed_shop("select stock from", &format!("select stock - {sold} from"));
    let file = folder.path().join("service.toml");
    let options = ["--faults", "interleavings", "--json", "-"];
    let run = start_in(Some(folder.path()), &file, "counted", &options).finish();
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert_eq!(found(pass(&judgement, "interleavings")), ["oversold"], "{judgement:#}");
    assert_shown(&judgement, "check-then-insert");
}

/// The orders are right; what counts them is not.
#[test]
fn stock_that_no_order_changes_is_no_drift() {
    let run = judge(SHOP, "counted", "none");
    assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{}", run.stderr);
    let said = "[books] stock found 5 units before the first order, and 5 after 5 were sold";
    assert!(run.stderr.contains(said), "{}", run.stderr);
}

/// The unit is taken in one transaction, and the order written in the next.
#[test]
fn unit_without_an_order_is_found_by_what_comes_between() {
    let drift: &[&str] = &["drift"];
    let passes = [("none", NOTHING), ("database-cut", drift), ("kill", drift), ("restart", drift)];
    assert_found(SHOP, "two-transactions", "two-transactions", &passes);
}

/// Two that come one after the other are one order.
#[test]
fn key_that_is_not_unique_is_found_by_a_retry() {
    let passes = [("none", NOTHING), ("gate", NOTHING), ("retry", &["doubled"][..])];
    assert_found(SHOP, "key-before", "key-not-unique", &passes);
}

#[test]
fn work_beyond_its_lease_is_found_by_a_pause() {
    let run = judge(SHOP, "redis-lock", "none,pause");
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert_eq!(found(pass(&judgement, "none")), NOTHING, "{judgement:#}");
    let pause = pass(&judgement, "pause");
    assert!(found(pause).iter().all(|it| ["oversold", "drift"].contains(it)), "{pause:#}");
    assert_eq!((&pause["runs"], pause["lost_in"].as_u64() > Some(0)), (&3.into(), true));
    assert_shown(&judgement, "lease-outlived");
}

/// Two requests alone rarely show it: the second one has to read between the release and the
/// commit.
#[test]
fn lock_that_is_released_too_early_is_found_by_many_buyers() {
    let run = judge(SHOP, "lock-before-commit", "none,gate");
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert_eq!(found(pass(&judgement, "control")), NOTHING, "{judgement:#}");
    let mut patterns = evidence(&judgement).into_iter().map(|it| &it["pattern"]);
    assert!(patterns.all(|it| *it == "released-before-commit"), "{judgement:#}");
}

#[test]
fn lock_that_is_released_too_early_is_found_by_slow_commits() {
    let passes = [("control", NOTHING), ("slow-commit", &["oversold", "drift"][..])];
    assert_found(SHOP, "lock-before-commit", "released-before-commit", &passes);
}

/// Without Redis it sells nothing, and is right.
#[test]
fn lock_that_redis_loses_is_found() {
    let run = judge(SHOP, "redis-lock", "none,redis-flush,redis-restart,redis-away");
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    for pass in judgement["passes"].as_array().unwrap() {
        assert_eq!(pass["ran"], true, "{pass:#}");
        let is_lost = ["redis-flush", "redis-restart"].iter().any(|name| pass["name"] == *name);
        assert_eq!(pass["lost_in"].as_u64() > Some(0), is_lost, "{pass:#}");
        assert!(found(pass).iter().all(|it| ["oversold", "drift"].contains(it)), "{pass:#}");
    }
    assert_shown(&judgement, "read-then-write");
}

const PASSES: [&str; 15] = [
    "control",
    "none",
    "gate",
    "retry",
    "stretch",
    "interleavings",
    "lost-answer",
    "database-cut",
    "pause",
    "kill",
    "restart",
    "slow-commit",
    "redis-flush",
    "redis-restart",
    "redis-away",
];

fn assert_sound(file: &str, mode: &str) {
    // Without a finding, `interleavings` uses all of its budget. That all schedules of two switches
    // pass is shown by the test of the schedules.
    let options = ["--faults", "all", "--budget", "6", "--json", "-"];
    let run = start(Path::new(file), mode, &options).finish();
    assert_eq!(run.code, Some(0), "{mode}: {}{}", run.stdout, run.stderr);
    let judgement = run.judgement();
    assert_eq!(judgement["sound"], true);
    let reports = judgement["passes"].as_array().unwrap();
    let names = reports.iter().map(|pass| pass["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), PASSES);
    for pass in reports {
        match pass["name"].as_str().unwrap() {
            "redis-flush" | "redis-restart" | "redis-away" => {
                let why = pass["why_not"].as_str().unwrap();
                assert!(why.starts_with("the service sends no commands to a Redis"), "{pass:#}");
            }
            // What is interrupted ends with an error, or without an answer, and may leave a unit.
            "database-cut" | "restart" => assert_found_nothing(pass),
            _ => {
                assert_eq!(pass["errors"], 0, "{mode}: {pass:#}");
                assert_sold_once(pass);
            }
        }
    }
}

/// Checks that a pass ran, and that all units were sold, once.
fn assert_sold_once(pass: &Value) {
    assert_found_nothing(pass);
    assert_eq!(pass["books_sold"], pass["opening"], "{pass:#}");
}

/// Checks that a pass ran, and that no unit was sold twice or lost.
fn assert_found_nothing(pass: &Value) {
    assert_eq!((&pass["ran"], &pass["lost_in"]), (&true.into(), &0.into()), "{pass:#}");
    assert_eq!(found(pass), NOTHING, "{pass:#}");
    assert_eq!(pass["evidence"].as_array().unwrap().len(), 0, "{pass:#}");
}

#[test]
fn lock_of_the_row_is_sound_under_every_pass() {
    assert_sound(SHOP, "row-lock");
}

#[test]
fn service_that_ends_when_it_is_struck_is_started_again() {
    let run = judge(SHOP, "quitting", "database-cut");
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let told = "of the service ended while it was judged: exit status: 1";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert!(run.stderr.contains("It is started again, as by a supervisor."), "{}", run.stderr);
    assert_found_nothing(pass(&run.judgement(), "database-cut"));
}

#[test]
fn condition_in_the_write_is_sound_under_every_pass() {
    assert_sound(SHOP_JS, "conditional");
}

fn keys(value: &Value) -> Vec<&str> {
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.into_iter().collect()
}

/// Checks the judgement of [`SHOP`] with a finding at the gate.
fn assert_has_keys_of_the_contract(judgement: &Value) {
    assert_eq!(keys(judgement), ["passes", "seed", "service", "sound", "started_at"]);
    assert_eq!(judgement["service"], serde_json::json!({ "name": "shop", "instances": 2 }));
    assert_eq!(judgement["seed"], 7);
    let expected = "attempts books_sold doubled drift errors evidence gap_ms hits lost lost_in name \
                    opening oversold p99_ms ran runs sold sold_out stock unknown";
    for pass in judgement["passes"].as_array().unwrap() {
        assert_eq!(keys(pass).join(" "), expected);
    }
    let [evidence] = evidence(judgement)[..] else { panic!("{judgement:#}") };
    let mut names = keys(evidence);
    // Of more than ten.
    names.retain(|name| !name.starts_with("left_out"));
    assert_eq!(names, ["message", "pattern", "statements", "summary", "under"]);
    let statement = &evidence["statements"][0];
    assert_eq!(keys(statement).join(" "), "answered_ms buyer instance result sent_ms sql");
    // Only the item and the keys are shown of what is longer than two digits.
    let text = evidence["statements"].to_string();
    assert!(text.contains("where idempotency_key = '") && text.contains("'item-"), "{text}");
}

#[test]
fn table_names_the_requests_and_demands_decide() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judgement.json");
    let baseline = file.to_str().unwrap();
    let judge_again = |options: &[&str]| {
        let options = [&["--faults", "gate"], options].concat();
        start(Path::new(SHOP), "check-then-decrement", &options).finish()
    };

    let run = judge_again(&["--json", baseline]);
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    for words in [
        "shop, 2 instances, seed 7\n",
        "\ngate: Check, then relative decrement: both requests found the last unit",
        "The judge held the row of the item meanwhile:\n",
        "ms  buyer 1, instance 1: select stock from products where id = 'item-",
        "ms  buyer 2, instance 2: update products set stock = stock - 1 where id = 'item-",
        " -- UPDATE 1, after ",
        "\nCure: Repeat the check in the write: `update products set stock = stock - 1 where",
        "\nNOT sound: shop\n  oversold  under gate\n",
    ] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }

    let run = judge_again(&["--baseline", baseline]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let said = "Exit code 0: as demanded, oversold under gate, as in the baseline.";
    assert!(run.stderr.contains(said), "{}", run.stderr);

    let run = judge_again(&["--baseline", baseline, "--json", baseline]);
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("--json and --baseline name one file"), "{}", run.stderr);

    let run = judge_again(&["--may-lose", "none, gate"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let said = "Exit code 0: as demanded, oversold under gate, which --may-lose allows.";
    assert!(run.stderr.contains(said), "{}", run.stderr);

    misfits::assert_baseline_is_anothers(&file);
}
