//! Files that an earlier version has saved, and a file of the API's JSON: they are read, and say
//! the same when they are written again.

use std::fs;

use holdfast_judge::report::Judgement;
use holdfast_lab::race::model::Race;
use holdfast_lab::run::LabRun;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const FOLDER: &str = "tests/saved";

/// Returns what a file says before and after it was read.
fn read_and_written<T: DeserializeOwned + Serialize>(file: &str) -> (Value, Value) {
    let json = fs::read_to_string(format!("{FOLDER}/{file}")).unwrap();
    let read: T = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{file}: {error}"));
    (serde_json::from_str(&json).unwrap(), serde_json::to_value(read).unwrap())
}

/// Asserts that `after` has all that `before` has; it may have fields that were added since.
fn assert_says(after: &Value, before: &Value, place: &str) {
    match (after, before) {
        (Value::Object(after), Value::Object(before)) => {
            for (name, value) in before {
                let place = format!("{place}, {name}");
                let kept = after.get(name).unwrap_or_else(|| panic!("{place} is lost"));
                assert_says(kept, value, &place);
            }
        }
        (Value::Array(after), Value::Array(before)) => {
            assert_eq!(after.len(), before.len(), "{place}");
            for (after, before) in after.iter().zip(before) {
                assert_says(after, before, place);
            }
        }
        _ => assert_eq!(after, before, "{place}"),
    }
}

#[test]
fn saved_files_keep_their_shape() {
    let mut kinds = [0; 3];
    for entry in fs::read_dir(FOLDER).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let (kind, (before, after)) = match file.split('-').next().unwrap() {
            "race" => (0, read_and_written::<Race>(&file)),
            "run" => (1, read_and_written::<LabRun>(&file)),
            "judgement" => (2, read_and_written::<Judgement>(&file)),
            other => panic!("{file}: {other} is no kind of file"),
        };
        kinds[kind] += 1;
        assert_says(&after, &before, &file);
    }
    assert!(kinds.iter().all(|files| *files > 1), "{kinds:?}");
}
