//! `up` rejects data folders and files that another user may have placed there, and programs that
//! the user of the services cannot run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use super::{OTHER_USER, Running, TestFolder, run, stderr_of_failure};

#[tokio::test]
async fn linked_files_are_rejected() {
    for name in ["up.lock", "pids", "id", "log"] {
        let test_folder = TestFolder::new();
        let folder = test_folder.path.join("target");
        fs::create_dir(&folder).expect("a folder");
        let file = folder.join("file");
        fs::write(&file, "untouched").expect("a file");
        let target = if name == "log" { &folder } else { &file };
        fs::create_dir(test_folder.data()).expect("a folder");
        fs::set_permissions(test_folder.data(), fs::Permissions::from_mode(0o711))
            .expect("it is ours");
        symlink(target, test_folder.data().join(name)).expect("a link");
        let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
        assert!(stderr.contains(name) && stderr.contains("remove it"), "{stderr}");
        assert_eq!(fs::read_to_string(&file).expect("it is still there"), "untouched");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        assert!(!test_folder.data().join("postgres").exists(), "{name}");
    }
}

/// Each case lets another user control what root reads or writes.
#[tokio::test]
async fn root_rejects_data_of_other_users() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let owned = |path: &Path| chown(path, Some(OTHER_USER), Some(OTHER_USER)).expect("root may");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    type Change<'c> = &'c dyn Fn(&TestFolder);
    let cases: [(&str, Change<'_>); 6] = [
        ("belongs to another user", &|test_folder| owned(&test_folder.data())),
        ("belongs to another user", &|test_folder| owned(&test_folder.path)),
        ("can write to", &|test_folder| mode(&test_folder.data(), 0o777)),
        ("can write to", &|test_folder| mode(&test_folder.path, 0o777)),
        ("belongs to another user", &|test_folder| {
            fs::write(test_folder.data().join("pids"), "redis 1 x").expect("a file");
            owned(&test_folder.data().join("pids"));
        }),
        ("belongs to another user", &|test_folder| {
            fs::remove_dir(test_folder.data()).expect("it is empty");
            fs::create_dir(test_folder.path.join("target")).expect("a folder");
            symlink(test_folder.path.join("target"), test_folder.data()).expect("a link");
            lchown(test_folder.data(), Some(OTHER_USER), Some(OTHER_USER)).expect("root may");
        }),
    ];
    for (index, (why, prepare)) in cases.into_iter().enumerate() {
        let test_folder = TestFolder::new();
        fs::create_dir(test_folder.data()).expect("a folder");
        prepare(&test_folder);
        let stderr = stderr_of_failure(&run(&mut test_folder.command()).await);
        assert!(stderr.contains(why), "{index}: {stderr}");
        assert!(!test_folder.data().join("postgres").exists(), "{index}");
    }
}

/// A virtual environment below `/root`, for example.
#[tokio::test]
async fn programs_closed_to_the_services_are_passed_over() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let test_folder = TestFolder::new();
    let closed = test_folder.path.join("closed");
    fs::create_dir(&closed).expect("a folder");
    for name in ["postgres", "initdb", "redis-server"] {
        fs::write(closed.join(name), "#!/bin/sh\nexit 3\n").expect("a file");
        fs::set_permissions(closed.join(name), fs::Permissions::from_mode(0o755))
            .expect("it is ours");
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let closed = closed.to_str().expect("a plain path");

    let only = run(test_folder.command().env("HOLDFAST_PROGRAMS_PATH", closed)).await;
    let stderr = stderr_of_failure(&only);
    assert!(stderr.contains("cannot be run by the user"), "{stderr}");

    let path = format!("{closed}:{}", std::env::var("PATH").expect("a PATH"));
    Running::start(&test_folder, &[("PATH", &path)]).await.stop().await;
}
