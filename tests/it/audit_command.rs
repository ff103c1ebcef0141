//! `holdfast audit`: its exit code, and a stdout that is closed or full.

use crate::common::Shop;

#[tokio::test]
async fn audit_command_reports_result_by_exit_code() {
    let shop = Shop::without_replicas().await;
    let audit = || {
        std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["audit", "--json"])
            .env("DATABASE_URL", shop.database_url())
            .output()
            .unwrap()
    };
    let sound = audit();
    assert_eq!(sound.status.code(), Some(0), "{sound:?}");
    sqlx::query("update items set stock = stock + 1").execute(&shop.pool).await.unwrap();
    let forged = audit();
    assert_eq!(forged.status.code(), Some(1), "{forged:?}");
    let report: serde_json::Value = serde_json::from_slice(&forged.stdout).unwrap();
    assert_eq!(report["ok"], false);
}

#[tokio::test]
async fn audit_command_survives_closed_stdout() {
    let shop = Shop::without_replicas().await;
    let audit_to = |stdout: std::process::Stdio| {
        std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .arg("audit")
            .env("DATABASE_URL", shop.database_url())
            .stdout(stdout)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap()
    };
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer.into()
    };
    let sound = audit_to(closed());
    assert_eq!((sound.status.code(), sound.stderr), (Some(0), vec![]));
    sqlx::query("update items set stock = stock + 1").execute(&shop.pool).await.unwrap();
    let forged = audit_to(closed());
    assert_eq!((forged.status.code(), forged.stderr), (Some(1), vec![]));
    // On a full disk the result is lost, so this is an error.
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let unheard = audit_to(full.into());
        assert_eq!(unheard.status.code(), Some(2), "{unheard:?}");
        let message = String::from_utf8(unheard.stderr).unwrap();
        assert!(message.contains("can't write to stdout"), "{message}");
    }
}
