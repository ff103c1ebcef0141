//! `up` when its terminal is closed.

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use super::{TIMEOUT, TestFolder, is_alive, send};

/// A closed terminal sends the signal twice: from its shell, and from the kernel.
#[tokio::test]
async fn closed_terminal_stops_up_in_order() {
    let test_folder = TestFolder::new();
    // The data is named in full: the same command in another folder is another shop.
    let mut command = test_folder.command();
    command.current_dir(&test_folder.path).env("HOLDFAST_DATA", "data");
    let mut up = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut out = BufReader::new(up.stdout.take().expect("it is piped"));
    let mut ready = String::new();
    timeout(TIMEOUT, out.read_line(&mut ready)).await.expect("in time").expect("a line");
    let pids = std::fs::read_to_string(test_folder.data().join("pids")).expect("the file `pids`");
    let pid = up.id().and_then(|pid| i32::try_from(pid).ok()).expect("it is running");

    send(pid, Signal::HUP);
    let mut lines = BufReader::new(up.stderr.take().expect("it is piped")).lines();
    let mut said = String::new();
    let stopping = async {
        while let Some(line) = lines.next_line().await.expect("a line") {
            if line.contains("hung up: stopping") {
                send(pid, Signal::HUP);
            }
            said += &(line + "\n");
        }
    };
    timeout(TIMEOUT, stopping).await.expect("it stops in time");
    let status = timeout(TIMEOUT, up.wait()).await.expect("it ends").expect("a status");
    assert!(status.success(), "{status}: {said}");
    let data = test_folder.data();
    for line in ["this is a new shop: its data is in", "stopped; the data stays in"] {
        assert!(said.contains(&format!("{line} {}\n", data.display())), "{said}");
    }
    let is_process = |line: &&str| !line.starts_with("folder ") && !line.starts_with("sockets ");
    for line in pids.lines().filter(is_process) {
        let pid = line.split(' ').nth(1).and_then(|pid| pid.parse().ok()).expect("a pid");
        assert!(!is_alive(pid).await, "{line} still runs");
    }
}
