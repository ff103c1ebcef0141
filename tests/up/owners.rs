//! Data folders and files that another user can have placed there: `up` refuses them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use crate::{TestFolder, run, stderr_of_failure};

#[tokio::test]
async fn linked_files_are_refused() {
    for name in ["up.lock", "pids", "services", "log"] {
        let place = TestFolder::new();
        let folder = place.path.join("target");
        fs::create_dir(&folder).expect("a folder");
        let file = folder.join("file");
        fs::write(&file, "untouched").expect("a file");
        let target = if name == "log" { &folder } else { &file };
        fs::create_dir(place.data()).expect("a folder");
        fs::set_permissions(place.data(), fs::Permissions::from_mode(0o700)).expect("it is ours");
        symlink(target, place.data().join(name)).expect("a link");
        let said = stderr_of_failure(&run(&mut place.command()).await);
        assert!(said.contains(name) && said.contains("remove it"), "{said}");
        assert_eq!(fs::read_to_string(&file).expect("it is still there"), "untouched");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        assert!(!place.data().join("postgres").exists(), "{name}");
    }
}

/// Each of these lets another user decide about what root reads or writes.
#[tokio::test]
async fn root_refuses_data_of_other_users() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let owned = |path: &Path| chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    type Change<'c> = &'c dyn Fn(&TestFolder);
    let cases: [(&str, Change<'_>); 6] = [
        ("belongs to another user", &|place| owned(&place.data())),
        ("belongs to another user", &|place| owned(&place.path)),
        ("can write to", &|place| mode(&place.data(), 0o777)),
        ("can write to", &|place| mode(&place.path, 0o777)),
        ("belongs to another user", &|place| {
            fs::write(place.data().join("pids"), "redis 1 x").expect("a file");
            owned(&place.data().join("pids"));
        }),
        ("belongs to another user", &|place| {
            fs::remove_dir(place.data()).expect("it is empty");
            fs::create_dir(place.path.join("target")).expect("a folder");
            symlink(place.path.join("target"), place.data()).expect("a link");
            lchown(place.data(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }),
    ];
    for (index, (why, prepare)) in cases.into_iter().enumerate() {
        let place = TestFolder::new();
        fs::create_dir(place.data()).expect("a folder");
        prepare(&place);
        let said = stderr_of_failure(&run(&mut place.command()).await);
        assert!(said.contains(why), "{index}: {said}");
        assert!(!place.data().join("postgres").exists(), "{index}");
    }
}
