//! What documents refer to exists: headings, and the tests that prove a claim.

use std::fs;

use super::{documents, relative, root, rust_files};

/// Returns the names of four words or more between code marks, as tests have them.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| {
        let words = name.split('_').count();
        words >= 4 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    // A name of Postgres, not ours.
    text.split('`').filter(is_name).filter(|name| !name.starts_with("pg_"))
}

#[test]
fn tests_that_documents_name_exist() {
    let folders = ["src", "tests", "crates"].map(|folder| rust_files(&root().join(folder)));
    let sources: Vec<String> =
        folders.concat().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let exists = |name: &str| sources.iter().any(|text| text.contains(&format!("fn {name}(")));

    let mut named = 0;
    for document in ["ARCHITECTURE", "CONCEPTS", "SECURITY"] {
        let path = root().join("docs").join(document).with_extension("md");
        let text = fs::read_to_string(path).unwrap();
        for name in named_tests(&text) {
            assert!(exists(name), "docs/{document}.md names {name}, which is not there");
            named += 1;
        }
    }
    assert!(named > 40, "only {named} tests are named");
}

/// Returns the anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn anchors_in_documents_exist() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let Some((file, wanted)) = link.split_once('#') else { continue };
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let target = fs::read_to_string(target).unwrap();
            let mut headings = target.lines().filter(|line| line.starts_with('#'));
            let name = relative(&document);
            assert!(headings.any(|line| anchor(line) == wanted), "{name}: no heading for {link}");
        }
    }
}

/// The commands of the README run in a clone as they stand there.
#[test]
fn readme_begins_with_the_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let commands: Vec<&str> =
        block.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(commands, ["script/server", "script/test"]);

    for command in commands {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(root().join(command)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{command} can not be executed");
    }
    assert!(!readme.contains("OWNER"), "a command has a placeholder");

    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.lines().any(|line| line.starts_with("script/test ")), "CI runs the same command");
}
