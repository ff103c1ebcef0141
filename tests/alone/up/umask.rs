//! `up` starts under any umask: modes that another account depends on are set explicitly.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use tokio::process::Command;

use super::{OTHER_USER, Running, TestFolder, is_ready};

#[tokio::test]
async fn up_starts_under_any_umask() {
    let may_set_user = rustix::process::geteuid().is_root();
    for (umask, as_other_user) in [("027", false), ("007", false), ("077", false), ("077", true)] {
        let test_folder = TestFolder::new();
        let data = test_folder.path.join("new").join("data");
        let mut command = under_umask(&test_folder, umask);
        if as_other_user && may_set_user {
            chown(&test_folder.path, Some(OTHER_USER), Some(OTHER_USER)).expect("root may");
            command.uid(OTHER_USER).gid(OTHER_USER);
        }
        command.args(["--replicas", "1", "--data"]).arg(&data);

        let mut up = Running::start_command(&test_folder, command).await;
        up.data = data.clone();
        assert!(is_ready(test_folder.port).await, "{umask}");
        up.stop().await;
        assert!(data.join("postgres/PG_VERSION").exists(), "{umask}: the data is in the folder");
        let private = fs::metadata(data.join("log")).expect("a folder").permissions().mode();
        assert_eq!(private & 0o077, 0, "{umask}");
    }
}

/// Returns the command `up` of a program that every user may run.
fn under_umask(test_folder: &TestFolder, umask: &str) -> Command {
    let program = test_folder.path.join("holdfast");
    fs::copy(env!("CARGO_BIN_EXE_holdfast"), &program).expect("a copy");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\"")).arg(program).arg("up");
    let listen = format!("127.0.0.1:{}", test_folder.port);
    command.args(["--listen", &listen]).current_dir("/");
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    command.kill_on_drop(true);
    command
}
