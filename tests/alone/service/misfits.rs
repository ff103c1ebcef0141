//! Services and files that are wrong in another way than by a race: each gets a sentence, and no
//! process is left.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{pass, start};
use crate::judge::assert_leaks_ended;
use crate::judge::command::{JudgeEnd, JudgeRun};
use crate::share_machine;

const MISFITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alone/service/misfits.py");
/// The file of one, without MISFITS and MODE. Its items are files, and it has no database.
const FILE: &str = r#"
name = "misfit"

[service]
start = ["python3", "MISFITS", "MODE", "{port}"]

[setup]
command = ["python3", "MISFITS", "make", "{stock}"]

[order]
post = "/orders/{item}"
sold = [201]
sold_out = [409]

[books]
command = ["python3", "MISFITS", "books", "{item}"]
"#;

/// A service of a mode of `misfits.py`, with its file in a folder of its own.
pub struct Misfit(TempDir);

impl Misfit {
    /// In its file, other lines are in the place of some.
    pub fn with(mode: &str, changes: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = changes.iter().fold(FILE.to_owned(), |text, (line, other)| {
            assert!(text.contains(line), "{line}");
            text.replace(line, other)
        });
        let text = text.replace("MISFITS", MISFITS).replace("MODE", mode);
        fs::write(folder.path().join("service.toml"), text).unwrap();
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn start(&self, options: &[&str]) -> JudgeRun {
        start(&self.path("service.toml"), "", options)
    }

    pub fn judge(&self, options: &[&str]) -> JudgeEnd {
        self.start(options).finish()
    }
}

/// Checks that none of these can be judged, and that stderr says why. Four at a time are tried.
pub fn assert_not_judged(cases: &[(Misfit, &[&str])]) {
    for some in cases.chunks(4) {
        let options = ["--faults", "none", "--json", "-"];
        let runs: Vec<_> = some.iter().map(|(misfit, _)| misfit.start(&options)).collect();
        for (run, (_, expected)) in runs.into_iter().zip(some) {
            let run = run.finish();
            assert_eq!(run.code, Some(2), "{expected:?}: {}{}", run.stdout, run.stderr);
            assert_eq!(run.stdout, "", "{expected:?}");
            for words in *expected {
                assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
            }
        }
    }
}

/// This costs the minute that an instance has to become ready; meanwhile, three orders of a service
/// that hangs are waited for.
#[test]
fn service_that_is_never_ready_or_sells_nothing_is_given_up() {
    let other_port: &[&str] = &["does not answer / on port ", "Connection refused"];
    let nothing = "the service sold nothing to one buyer after the other";
    assert_not_judged(&[
        (Misfit::with("never-ready", &[]), &["with 2xx after 60s: status 500: not today"]),
        (Misfit::with("other-port", &[]), other_port),
        (Misfit::with("hangs", &[]), &[nothing, "no answer within 10s"]),
        (Misfit::with("signs-in", &[]), &["with 2xx after 10s: status 302, to /sign-in"]),
        (Misfit::with("dies", &[]), &["ended while it was judged: exit status: 3", "out of ink"]),
        (Misfit::with("redirects", &[]), &[nothing, "status 302, to /sign-in"]),
        (Misfit::with("pages", &[]), &[nothing, "status 200: <html><h1>Please sign in</h1>"]),
        (Misfit::with("errors", &[]), &[nothing, "status 500: out of paper"]),
        (
            Misfit::with("exits", &[]),
            &["ended before it was ready: exit status: 3. `start` must be", "out of paper"],
        ),
    ]);
}

#[test]
fn commands_that_are_wrong_are_named() {
    let with = |line: &str, other: &str| Misfit::with("sound", &[(line, other)]);
    let once = "[setup]\nonce = [\"python3\", \"MISFITS\", \"fails\"]";
    let start = r#""python3", "MISFITS", "MODE""#;
    let make = r#""python3", "MISFITS", "make", "{stock}""#;
    let books = r#""python3", "MISFITS", "books", "{item}""#;
    let order = "post = \"/orders/{item}\"\nsold = [201]\nsold_out = [409]\n";
    assert_not_judged(&[
        (
            with("[setup]", once),
            &["[setup] once: `python3` failed (exit status: 1)", "out of paper"],
        ),
        (
            with(start, "\"/nonexistent/shop\", \"{port}\""),
            &["[service] start: there is no program `/nonexistent/shop`"],
        ),
        (with(make, "\"echo\", \"done\""), &["[setup] command: it must print {\"item\": ", "done"]),
        (
            with(make, "\"/nonexistent/make\""),
            &["[setup] command: there is no program `/nonexistent/make`"],
        ),
        (
            with(make, r#""python3", "MISFITS", "fails""#),
            &["[setup] command: `python3` failed (exit status: 1)", "out of paper"],
        ),
        (with(make, "\"true\""), &["[setup] command: it must print {\"item\": ", "not \"\""]),
        (with("{stock}", "7"), &["with a stock of 1", "finds 7 in stock", "is `{stock}` used"]),
        (with(books, "\"echo\", \"many\""), &["[books] command: it must print ", "many"]),
        (
            with(order, "command = [\"echo\", \"hello\"]\n"),
            &[
                "a buyer can't prepare its order: it printed no answer",
                "hello. The service has printed nothing",
            ],
        ),
        (
            with("[setup]\ncommand = [", "[setup]\nsql = \"select 1\"\n# ["),
            &["[setup] sql: the service has no database"],
        ),
    ]);
}

#[test]
fn invalid_files_and_options_are_reported_before_the_work() {
    let missing = start(Path::new("/nonexistent.toml"), "", &[]).finish();
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    assert!(missing.stderr.contains("can't read /nonexistent.toml"), "{}", missing.stderr);

    let cases: [(&str, &[&str], &str); 7] = [
        ("post = \"/orders/{item}\"\n", &[], "[order] needs either `post`"),
        ("/orders/", &[], "[order] post = \"{item}\": it must be a path that begins with /"),
        ("sold = [201]\n", &[], "[order] needs `sold`"),
        ("", &["--faults", "paws"], "--faults paws: the passes are all, or some of control, none,"),
        ("", &["--may-lose", "paws"], "--may-lose paws: the passes are control, none, "),
        ("", &["--baseline", "/nonexistent.json"], "can't read /nonexistent.json"),
        ("", &["--json", "/nonexistent/judgement.json"], "can't write /nonexistent/judgement.json"),
    ];
    for (line, options, expected) in cases {
        let run = Misfit::with("sound", &[(line, "")]).judge(options);
        assert_eq!(run.code, Some(2), "{expected}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
    let typing_error = Misfit::with("sound", &[("post =", "path =")]).judge(&[]).stderr;
    assert!(typing_error.contains("line 11") && typing_error.contains("`path`"), "{typing_error}");
}

/// The judgement of another service, without a pass that is asked for: nothing is started.
pub fn assert_baseline_is_anothers(baseline: &Path) {
    let baseline = ["--baseline", baseline.to_str().unwrap()];
    for (faults, expected) in [
        ("gate", "the baseline is of something else: shop, not misfit"),
        ("gate,pause", "has no result for pause: choose other --faults"),
    ] {
        let options = [&["--faults", faults], &baseline[..]].concat();
        let run = Misfit::with("exits", &[]).judge(&options);
        assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
}

/// They are killed with what they have detached, however much they print.
#[test]
fn children_and_output_of_a_sound_service_do_no_harm() {
    let once = "[setup]\nonce = [\"python3\", \"MISFITS\", \"leaves\"]";
    let instances = "[service]\ninstances = 3";
    let leaks = Misfit::with("leaks", &[]);
    let leaves = Misfit::with("sound", &[("[setup]", once)]);
    let floods = Misfit::with("floods", &[("[service]", instances)]);
    let runs = [&leaks, &leaves, &floods].map(|it| it.start(&["--faults", "none", "--json", "-"]));
    for run in runs {
        let run = run.finish();
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
        assert_eq!(run.judgement()["sound"], true);
    }
    assert_leaks_ended(&leaks.path("left"));
    assert_leaks_ended(&leaves.path("left"));
}

/// What is answered to every order, be it a page to sign in, sells nothing.
#[test]
fn page_that_counts_as_sold_is_not_judged() {
    let misfit = Misfit::with("pages", &[("sold = [201]", "sold = [200]")]);
    let refused =
        "3 of the 8 orders that were answered *sold* are not in the books, and took no stock";
    assert_not_judged(&[
        (misfit, &["[books] sold found none of the 8 units"]),
        (Misfit::with("thanks", &[]), &[refused]),
    ]);
}

#[test]
fn passes_that_can_not_run_are_no_verdict() {
    let run = Misfit::with("sound", &[]).judge(&["--faults", "retry,gate,pause"]);
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    assert!(
        run.stderr.contains("none of the passes that were asked for has run"),
        "{}",
        run.stderr
    );
    for why in [
        "\nNOT judged: none of the passes that were asked for has run.\n",
        "retry    not run: the order has no {key}",
        "pause    not run: the judge knows of no table in Postgres that has the stock",
    ] {
        assert!(run.stdout.contains(why), "{why}: {}", run.stdout);
    }
}

#[test]
fn pass_in_which_nothing_is_sold_is_no_verdict() {
    let run = Misfit::with("small", &[]).judge(&["--faults", "none"]);
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    let why = "none     not run: nothing was sold: status 500: too much for a small shop\n";
    assert!(run.stdout.contains(why), "{}", run.stdout);
}

/// As by a build while it judges.
#[test]
fn judge_whose_program_file_is_gone_starts_instances() {
    let misfit = Misfit::with("sound", &[("[service]", "[service]\ninstances = 3")]);
    // A copy could not be started while another test's new process has it open to write.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("holdfast");
    fs::hard_link(env!("CARGO_BIN_EXE_holdfast"), &program).unwrap();
    let mut judge = Command::new(&program);
    judge.args(["judge", "service"]).arg(misfit.path("service.toml"));
    judge.args(["--faults", "none", "--json", "-"]);
    let run = JudgeRun::watch(judge, share_machine());
    fs::remove_file(&program).unwrap();
    let run = run.finish();
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn service_that_runs_already_is_left_running() {
    let _machine = share_machine();
    let misfit = Misfit::with("sound", &[]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut service = Command::new("python3");
    service.arg(MISFITS).args(["sound", &port.to_string()]).current_dir(misfit.path(""));
    let mut service = Running(service.spawn().unwrap());

    let mut judge = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    judge.args(["judge", "service"]).arg(misfit.path("service.toml"));
    judge.args(["--faults", "none,kill", "--json", "-"]);
    judge.args(["--attach", &format!("http://127.0.0.1:{port}")]);
    let judged = judge.output().unwrap();
    assert_eq!(judged.status.code(), Some(0), "{}", String::from_utf8_lossy(&judged.stderr));
    let judgement: Value = serde_json::from_slice(&judged.stdout).unwrap();
    assert_eq!(judgement["service"]["instances"], 1);
    assert_eq!(pass(&judgement, "none")["ran"], true, "{judgement:#}");
    let why = pass(&judgement, "kill")["why_not"].as_str().unwrap();
    assert!(why.starts_with("the service runs already"), "{why}");
    assert!(service.0.try_wait().unwrap().is_none());
    TcpStream::connect(("127.0.0.1", port)).unwrap();
}

#[test]
fn interrupted_judge_of_a_service_leaves_nothing_behind() {
    // While it waits for the service, and in the control.
    for (mode, signal) in [("never-ready", Signal::INT), ("hangs", Signal::TERM)] {
        let misfit = Misfit::with(mode, &[]);
        let run = misfit.start(&["--json", "-"]);
        run.wait_for_adapters();
        if mode == "hangs" {
            run.wait_for("an order hangs", || misfit.path("ordered").exists());
        }
        run.send(signal);
        let run = run.finish();
        assert_eq!(run.code, Some(2), "{mode}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{mode}");
        let why = if signal == Signal::INT { "interrupted" } else { "terminated" };
        assert!(run.stderr.contains(why), "{mode}: {}", run.stderr);
    }
}
