//! `holdfast site`: the command, and what a visitor's browser sees of the site that it makes.

mod command;
mod files;
mod host;
mod locks;
mod race;
mod scheduler;
mod visit;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use holdfast_testkit::program;
use tokio::sync::OnceCell;

/// The first page of an earlier site.
const EARLIER: &str = "<meta name=\"generator\" content=\"holdfast site\">";

/// Returns the folder of the site that all tests of this binary visit. It takes the place of that
/// of an earlier run.
async fn site() -> &'static Path {
    static SITE: OnceCell<PathBuf> = OnceCell::const_new();
    SITE.get_or_init(async || tokio::task::spawn_blocking(make).await.unwrap()).await
}

fn make() -> PathBuf {
    let pglite = Command::new("script/pglite").output().unwrap();
    assert!(pglite.status.success(), "{}", String::from_utf8_lossy(&pglite.stderr));
    let pglite = String::from_utf8(pglite.stdout).unwrap();

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index.html"), EARLIER).unwrap();

    // The site is the program's work alone: a Python that it calls fails.
    let bin = tempfile::tempdir().unwrap();
    symlink("/bin/false", bin.path().join("python3")).unwrap();
    let mut path = bin.path().as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap());

    let mut making = Command::new(program());
    making.arg("site").arg(&folder).args(["--sources", ".", "--pglite", pglite.trim()]);
    let made = making.env("PATH", path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder.canonicalize().unwrap()
}
