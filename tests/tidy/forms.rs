//! Every field that is typed in says what is wrong with it, and has the focus, in one way: that of
//! `templates/parts/form.html`. Browsers see to the others, which are chosen.

use std::fs;
use std::path::Path;

use regex::Regex;

const FIELDS: &str = "templates/parts/form.html";
const CHOSEN: [&str; 5] = ["hidden", "checkbox", "radio", "range", "submit"];

fn templates(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            templates(&path, found);
        } else {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_typed_field_shows_its_error_in_one_way() {
    let mut all = Vec::new();
    templates(Path::new("templates"), &mut all);
    let field = Regex::new(r"(?s)<(?:input|textarea)\b(?:\{[{%].*?[%}]\}|[^>{])*>").unwrap();
    let kind = Regex::new(r#" type="([a-z]+)""#).unwrap();

    let (mut count, mut left) = (0, Vec::new());
    for (path, text) in &all {
        if path != FIELDS && (text.contains("errors.of(") || text.contains("aria-invalid")) {
            left.push(format!("{path} has markup of its own"));
        }
        for found in field.find_iter(text) {
            let kind =
                kind.captures(found.as_str()).map_or("text", |kind| kind.get(1).unwrap().as_str());
            let form = text[..found.start()].rsplit_once("<form ").map_or("", |(_, form)| form);
            // A search that finds nothing is no error.
            let is_search = form.split('>').next().unwrap().contains(r#"method="get""#);
            if CHOSEN.contains(&kind) || is_search {
                continue;
            }
            count += 1;
            if !found.as_str().contains("fields::invalid(") {
                left.push(format!("{path}: {}", found.as_str()));
            }
        }
    }
    assert!(count >= 20, "{count} fields were found");
    assert!(left.is_empty(), "{left:#?}");
}
