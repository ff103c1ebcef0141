//! `script/check-upgrade`: finds migrations with which the replicas of the last release would fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A repository with the schema and some of the statements of this one.
struct TestRepository(TempDir);

impl TestRepository {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let repository = Self(tempfile::tempdir().unwrap());
        for folder in ["migrations", "script", ".sqlx"] {
            std::fs::create_dir(repository.path(folder)).unwrap();
            for file in std::fs::read_dir(root.join(folder)).unwrap() {
                let file = file.unwrap();
                let text = std::fs::read_to_string(file.path()).unwrap();
                // Preparing all statements takes ten seconds.
                if folder != ".sqlx" || text.contains("password_hash") {
                    let name = file.file_name().into_string().unwrap();
                    std::fs::copy(file.path(), repository.path(folder).join(name)).unwrap();
                }
            }
        }
        repository.git(&["init", "--quiet"]);
        repository.commit("a release");
        repository
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=test", "-c", "user.email=test@example.org"]);
        let output = git.args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    /// Writes a migration, and returns the exit code and the output of the check.
    fn check_with(&self, migration: &str) -> (Option<i32>, String) {
        std::fs::write(self.path("migrations/0999_test.sql"), migration).unwrap();
        let output = Command::new(self.path("script/check-upgrade")).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn incompatible_migrations_are_found() {
    let repository = TestRepository::new();
    let (code, output) = repository.check_with("alter table users rename name to login");
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("there is no tag v*"), "{output}");

    repository.git(&["tag", "v0.1.0"]);
    std::fs::write(repository.path("later"), "").unwrap();
    repository.commit("a commit after it");
    for (migration, found) in [
        ("alter table users rename name to login", "column \"name\" of relation"),
        ("alter table users add phone text not null", "users.phone is not null"),
        ("drop table users cascade", "relation \"users\" does not exist"),
        ("alter table users alter password_hash drop not null", "password_hash may be null"),
        ("alter table users alter password_hash type bytea using ''", "is of type bytea"),
    ] {
        let (code, output) = repository.check_with(migration);
        assert_eq!(code, Some(1), "{migration}: {output}");
        assert!(output.contains(found), "{migration}: {output}");
    }
    for migration in [
        "alter table users add phone text",
        "alter table users add phone text not null default ''",
        "create table phones (phone text not null)",
    ] {
        let (code, output) = repository.check_with(migration);
        assert_eq!(code, Some(0), "{migration}: {output}");
        assert!(output.contains("statements of v0.1.0: all work"), "{output}");
    }
}
