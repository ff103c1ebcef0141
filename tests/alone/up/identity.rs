//! `up` and data folders that were copied, moved, restored, or made by another build.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::{
    Running, TestFolder, create_marker, has_marker, is_alive, is_ready, run, send,
    stderr_of_failure, wait_until,
};

#[tokio::test]
async fn copy_of_a_running_shop_harms_nothing() {
    let [original, copy] = [TestFolder::new(), TestFolder::new()];
    let up = Running::start(&original, &[]).await;
    create_marker(&up.env()).await;
    let (pids, sockets) = (up.pids(), up.sockets());
    execute("cp", &["-a"], &original.data(), &copy.data());

    let stderr = stderr_of_failure(&run(&mut copy.command()).await);
    let named = format!("is a copy of {}", original.data().display());
    for part in [named.as_str(), "while its shop ran", "--adopt"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let adopted = start_with(&copy, "--adopt").await;
    assert!(has_marker(&adopted.env()).await);
    assert!(is_ready(original.port).await);
    assert_eq!(up.pids(), pids);
    assert!(sockets.exists(), "the original's sockets");
    adopted.stop().await;

    // A reused pid: that of another Postgres of the same user, which runs.
    let stale = original.data().join("postgres/postmaster.pid");
    fs::copy(stale, copy.data().join("postgres/postmaster.pid")).expect("a copy");
    let adopted = Running::start(&copy, &[]).await;
    assert!(is_ready(original.port).await);
    adopted.stop().await;
    for (role, pid) in pids {
        assert!(is_alive(pid).await, "{role} of the original");
    }
    up.stop().await;
}

/// Also the path of a link, and a copy without the owners.
#[tokio::test]
async fn moved_and_restored_data_is_adopted() {
    let test_folder = TestFolder::new();
    let up = Running::start(&test_folder, &[]).await;
    create_marker(&up.env()).await;
    up.stop().await;

    let moved = test_folder.path.join("moved");
    fs::rename(test_folder.data(), &moved).expect("it is ours");
    std::os::unix::fs::symlink(&moved, test_folder.data()).expect("a link");
    let up = Running::start(&test_folder, &[]).await;
    assert!(has_marker(&up.env()).await, "moved and linked");
    up.stop().await;

    fs::remove_file(test_folder.data()).expect("the link");
    execute("cp", &["-r"], &moved, &test_folder.data());
    fs::remove_dir_all(&moved).expect("it is ours");
    let up = Running::start(&test_folder, &[]).await;
    assert!(has_marker(&up.env()).await, "restored");
    // A killed `up` leaves the files of a running one.
    kill(up).await;

    execute("cp", &["-a"], &test_folder.data(), &moved);
    fs::remove_dir_all(test_folder.data()).expect("it is ours");
    fs::rename(&moved, test_folder.data()).expect("it is ours");
    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    assert!(stderr.contains("while its shop ran") && stderr.contains("--adopt"), "{stderr}");
    let up = start_with(&test_folder, "--adopt").await;
    assert!(has_marker(&up.env()).await, "adopted");
    up.stop().await;
}

/// As root, with a data folder that is closed to the services' user, such as one below `/root`.
#[tokio::test]
async fn external_database_stays_with_its_shop() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let [test_folder, other] = [TestFolder::new(), TestFolder::new()];
    for private in [&test_folder.path, &other.path] {
        fs::set_permissions(private, fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
    let up = Running::start(&test_folder, &[]).await;
    create_marker(&up.env()).await;
    up.stop().await;
    let original = ExternalFolder::of(&test_folder.data());

    // A new shop in the place of a moved one has its own database.
    fs::rename(test_folder.data(), other.data()).expect("it is ours");
    let up = Running::start(&test_folder, &[]).await;
    assert!(!has_marker(&up.env()).await);
    up.stop().await;
    let replaced = ExternalFolder::of(&test_folder.data());
    let up = Running::start(&other, &[]).await;
    assert!(has_marker(&up.env()).await, "the moved shop has its database");

    // A copy cannot share it, not even while the original is elsewhere.
    fs::remove_dir_all(test_folder.data()).expect("it is ours");
    execute("cp", &["-a"], &other.data(), &test_folder.data());
    let stderr = stderr_of_failure(&run(test_folder.command().arg("--adopt")).await);
    assert!(stderr.contains("/var/lib/holdfast-") && stderr.contains("is in use"), "{stderr}");
    let hidden = other.path.join("hidden");
    fs::rename(other.data(), &hidden).expect("it is ours");
    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    assert!(stderr.contains("is in use"), "{stderr}");
    fs::rename(&hidden, other.data()).expect("it is ours");
    up.stop().await;

    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    assert!(stderr.contains("is a copy of") && stderr.contains("--adopt"), "{stderr}");
    let adopted = start_with(&test_folder, "--adopt").await;
    let copied = ExternalFolder::of(&test_folder.data());
    assert!(has_marker(&adopted.env()).await);
    assert_ne!(copied.0, original.0);
    adopted.stop().await;
    assert!(replaced.0.exists(), "the data of a removed shop");
}

#[tokio::test]
async fn missing_external_database_is_not_recreated() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let test_folder = TestFolder::new();
    fs::set_permissions(&test_folder.path, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let up = Running::start(&test_folder, &[]).await;
    create_marker(&up.env()).await;
    up.stop().await;
    let external = ExternalFolder::of(&test_folder.data());

    let saved = test_folder.path.join("saved");
    execute("cp", &["-a"], &external.0, &saved);
    fs::remove_dir_all(&external.0).expect("it is ours");
    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    assert!(stderr.contains(external.0.to_str().expect("plain")), "{stderr}");
    assert!(stderr.contains("is missing"), "{stderr}");
    assert!(!external.0.exists());

    execute("cp", &["-a"], &saved, &external.0);
    let up = Running::start(&test_folder, &[]).await;
    assert!(has_marker(&up.env()).await, "restored");
    up.stop().await;
}

#[tokio::test]
async fn data_without_identity_is_rejected() {
    for file in ["postgres/PG_VERSION", "services"] {
        let test_folder = TestFolder::new();
        let file = test_folder.data().join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(&file, "15\n").expect("a file");
        let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
        assert!(stderr.contains("another build of Holdfast"), "{stderr}");
        assert_eq!(fs::read_to_string(&file).expect("it is unchanged"), "15\n");
        assert!(!test_folder.data().join("id").exists());
    }
}

#[tokio::test]
async fn file_in_place_of_folder_is_named() {
    let test_folder = TestFolder::new();
    fs::write(test_folder.data(), "").expect("a file");
    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    assert!(stderr.contains("is not a folder") && stderr.contains("--data FOLDER"), "{stderr}");
}

/// As root, which may mount a small disk.
#[tokio::test]
async fn full_disk_is_named_with_advice() {
    let test_folder = TestFolder::new();
    fs::create_dir(test_folder.data()).expect("a folder");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m,mode=711", "small"])
        .arg(test_folder.data())
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return;
    }
    let output = run(&mut test_folder.command()).await;
    let unmounted = Command::new("umount").arg(test_folder.data()).status();
    assert!(unmounted.expect("umount").success());
    let stderr = stderr_of_failure(&output);
    assert!(stderr.contains("no space is left") && stderr.contains("--data FOLDER"), "{stderr}");
    assert!(!stderr.contains("initdb:"), "{stderr}");
}

/// The children outlive a killed `up` without `setpriv`, and its record of them is lost.
#[tokio::test]
async fn unrecorded_postgres_is_left_alone() {
    let test_folder = TestFolder::new();
    let path = super::path_without_setpriv(&test_folder);
    let mut up = Running::start(&test_folder, &[("PATH", &path)]).await;
    let pids = up.pids();
    up.child.kill().await.expect("up is killed");
    fs::remove_file(test_folder.data().join("pids")).expect("it is ours");

    let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
    let postgres = pids["postgres"];
    assert!(stderr.contains(&format!("kill -INT {postgres}")), "{stderr}");
    for pid in pids.values() {
        assert!(is_alive(*pid).await);
    }
    for pid in pids.values() {
        send(*pid, Signal::KILL);
        wait_until("it ends", async || !is_alive(*pid).await).await;
    }
}

/// The folder of the services' data of a shop, removed with this value.
struct ExternalFolder(PathBuf);

impl ExternalFolder {
    fn of(data: &Path) -> Self {
        let record = fs::read_to_string(data.join("id")).expect("the identity");
        let id = record.lines().find_map(|line| line.strip_prefix("id ")).expect("an id");
        let path = PathBuf::from(format!("/var/lib/holdfast-{id}"));
        assert!(path.join("postgres/PG_VERSION").exists(), "{}", path.display());
        Self(path)
    }
}

impl Drop for ExternalFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that copies `from` to `to`.
fn execute(program: &str, options: &[&str], from: &Path, to: &Path) {
    let status = Command::new(program).args(options).arg(from).arg(to).status();
    assert!(status.expect("a usual program").success());
}

async fn start_with(test_folder: &TestFolder, option: &str) -> Running {
    let mut command = test_folder.command();
    command.arg(option);
    Running::start_command(test_folder, command).await
}

/// Kills `up`, and waits until its children have ended.
async fn kill(mut up: Running) {
    let pids = up.pids();
    up.child.kill().await.expect("up is killed");
    for pid in pids.into_values() {
        wait_until("it ends", async || !is_alive(pid).await).await;
    }
}
