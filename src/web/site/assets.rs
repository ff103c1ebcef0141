//! The files beside the site's pages: the shop's style sheets, scripts and fonts, and PGlite.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::folder::{Folder, Sources};
use crate::web::pages::assets;

/// Those of the shop that no page of the site loads.
const OF_SHOP: [&str; 12] = [
    "class.css",
    "handles.js",
    "holdfast.js",
    "lab.js",
    "present.css",
    "race-preview-once-en.png",
    "race-preview-once-zh.png",
    "service.css",
    "swimlane.js",
    "tabs.js",
    "uplot.css",
    "uplot.js",
];
/// The files that PGlite loads beside its scripts.
pub(super) const PGLITE_FILES: [&str; 3] = ["pglite.wasm", "pglite.data", "initdb.wasm"];

pub(super) fn write(folder: &Folder, sources: &Sources) -> anyhow::Result<()> {
    for (name, content) in assets::all() {
        if OF_SHOP.contains(&name) {
            continue;
        }
        let file = format!("assets/{name}");
        match str::from_utf8(content) {
            Ok(css) if name.ends_with(".css") => folder.write(&file, without_comments(css))?,
            // Not a module, which a page from the file system cannot load; its names are its own.
            Ok(script) if name.ends_with(".js") => {
                folder.write(&file, format!("(() => {{\n{script}}})();\n"))?;
            }
            _ => folder.write(&file, content)?,
        }
    }

    match &sources.pglite {
        Some(package) => write_pglite(folder, package),
        None => Ok(()),
    }
}

/// Returns a style sheet without what only its readers need: a static host may compress nothing.
fn without_comments(css: &str) -> String {
    let mut parts = css.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    let code =
        parts.fold(first, |kept, part| kept + part.split_once("*/").map_or("", |(_, code)| code));
    let lines = code.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// Checks that a folder is the package of PGlite.
pub(super) fn check_pglite(package: &Path) -> anyhow::Result<()> {
    for name in PGLITE_FILES {
        let path = package.join("dist").join(name);
        ensure!(path.is_file(), "no package of PGlite: there is no {}", path.display());
    }
    Ok(())
}

fn write_pglite(folder: &Folder, package: &Path) -> anyhow::Result<()> {
    let dist = package.join("dist");
    let read = |name: &str| {
        let path = dist.join(name);
        fs::read(&path).with_context(|| format!("no file of PGlite: {}", path.display()))
    };

    for name in PGLITE_FILES {
        folder.write(&format!("assets/pglite/{name}"), read(name)?)?;
    }

    let mut written = BTreeSet::new();
    let mut queue = vec!["index.js".to_owned()];
    while let Some(name) = queue.pop() {
        if !written.insert(name.clone()) {
            continue;
        }
        let script = read(&name)?;
        queue.extend(imports(&String::from_utf8_lossy(&script)));
        folder.write(&format!("assets/pglite/{name}"), script)?;
    }

    let license = package.join("LICENSE");
    let license = fs::read(&license).with_context(|| format!("no {}", license.display()))?;
    folder.write("assets/pglite/LICENSE", license)
}

/// Returns the scripts beside it that a script imports: `from"./chunk.js"`, `import("./chunk.js")`.
fn imports(script: &str) -> impl Iterator<Item = String> {
    script.split("\"./").skip(1).filter_map(|rest| {
        let name = rest.split('"').next()?;
        let is_beside = name.ends_with(".js") && !name.contains('/');
        is_beside.then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_sheets_lose_comments_alone() {
        let css = "/* A\nB */\na { color: red; } /* c */\n\n  b {}\n";
        assert_eq!(without_comments(css), "a { color: red; }\nb {}\n");
    }

    #[test]
    fn imports_are_scripts_beside() {
        let script =
            r#"import{a}from"./a.js";import("./b-1.js");new URL("./c.wasm",d);import("./fs/e.js")"#;
        assert_eq!(imports(script).collect::<Vec<_>>(), ["a.js", "b-1.js"]);
    }

    #[test]
    fn assets_of_the_shop_exist() {
        for name in OF_SHOP {
            assert!(assets::all().any(|(asset, _)| asset == name), "{name}");
        }
    }
}
