//! What the scheduler needs on the site: the shop's statements and migrations, the recorded games,
//! and the sizes of what a visitor would load.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;

use super::assets::PGLITE_FILES;
use super::folder::Folder;
use crate::web::pages::scheduler_game::FileSizes;
use holdfast_shop::store::shared::shared_sql;

const SQL: &str = "assets/shop-sql.js";
const RECORDINGS: &str = "assets/recorded.js";

pub(super) fn write_scripts(
    folder: &Folder,
    games: &BTreeMap<&'static str, Vec<Value>>,
) -> anyhow::Result<()> {
    folder.write(SQL, script("shopSql", &shared_sql())?)?;
    folder.write(RECORDINGS, script("recordedGames", games)?)
}

/// Returns a script that sets a variable: a page from the file system can load it, unlike JSON.
fn script(name: &str, value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("window.{name} = {};\n", serde_json::to_string(value)?))
}

/// Returns the sizes of what the page loads on demand.
pub(super) fn sizes(site: &Path) -> anyhow::Result<FileSizes> {
    let pglite = site.join("assets/pglite");
    let mut sizes = FileSizes {
        of_pglite: BTreeMap::new(),
        played: 0,
        played_compressed: 0,
        recordings: fs::metadata(site.join(RECORDINGS))?.len(),
    };

    let mut played = vec![site.join(SQL)];
    if pglite.exists() {
        for file in fs::read_dir(&pglite)? {
            let path = file?.path();
            let is_loaded = path.extension().is_some();
            played.extend(is_loaded.then_some(path));
        }
        for name in PGLITE_FILES {
            let size = fs::metadata(pglite.join(name))?.len();
            sizes.of_pglite.insert(name.to_owned(), size);
        }
    }

    for path in played {
        let content = fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
        let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
        compressed.write_all(&content)?;
        sizes.played += content.len() as u64;
        sizes.played_compressed += compressed.finish()?.len() as u64;
    }
    Ok(sizes)
}
