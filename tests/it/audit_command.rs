//! `holdfast audit`: its exit code, also if stdout is closed or full.

use std::process::{Command, Output, Stdio};

use holdfast_testkit::TestShop;

/// The exit code is the result, also if no process reads the output.
#[tokio::test]
async fn audit_command_reports_result_by_exit_code() {
    let shop = TestShop::without_replicas().await;
    let audit_to = |stdout: Stdio| -> Output {
        let mut audit = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        audit.args(["audit", "--json"]).env("DATABASE_URL", shop.database_url());
        let child = audit.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        child.wait_with_output().unwrap()
    };
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let sound = audit_to(closed());
    assert_eq!((sound.status.code(), sound.stderr), (Some(0), vec![]));

    sqlx::query("update items set stock = stock + 1").execute(&shop.pool).await.unwrap();
    let forged = audit_to(closed());
    assert_eq!((forged.status.code(), forged.stderr), (Some(1), vec![]));
    let report: serde_json::Value =
        serde_json::from_slice(&audit_to(Stdio::piped()).stdout).unwrap();
    assert_eq!(report["ok"], false);

    // On a full disk the result is lost, so this is an error.
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let unwritten = audit_to(full.into());
        assert_eq!(unwritten.status.code(), Some(2), "{unwritten:?}");
        let message = String::from_utf8(unwritten.stderr).unwrap();
        assert!(message.contains("can't write to stdout"), "{message}");
    }
}
