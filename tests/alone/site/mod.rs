//! `holdfast site`: the command, and what a visitor's browser sees of the site that it makes.

mod command;
mod files;
mod host;
mod locks;
mod race;
mod scheduler_game;
mod visit;

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use holdfast_testkit::program;

/// The first page of an earlier site.
const EARLIER: &str = "<meta name=\"generator\" content=\"holdfast site\">";

/// The site that all tests of this binary visit. It takes the place of that of an earlier run.
struct Site {
    folder: PathBuf,
    /// Locked as long as this process lives: another one may use the same folder.
    _lock: File,
}

fn site() -> &'static Path {
    static SITE: LazyLock<Site> = LazyLock::new(Site::make);
    &SITE.folder
}

impl Site {
    fn make() -> Self {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let lock = File::create(home.join("site.lock")).unwrap();
        lock.lock().unwrap();

        let folder = home.join("site");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("index.html"), EARLIER).unwrap();

        script_site(Command::new("script/site").arg("--install"));
        // The site is the program's work alone: a Python that it calls fails.
        let bin = tempfile::tempdir().unwrap();
        let python = bin.path().join("python3");
        fs::write(&python, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&python, Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.path().display(), env::var("PATH").unwrap());
        let mut making = Command::new("script/site");
        script_site(making.arg(&folder).env("HOLDFAST", program()).env("PATH", path));

        Self { folder: folder.canonicalize().unwrap(), _lock: lock }
    }
}

fn script_site(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
