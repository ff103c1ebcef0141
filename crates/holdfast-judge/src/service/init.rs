//! `holdfast judge service --init`: a commented file that describes a service, to start from.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use strum::IntoStaticStr;

/// A framework whose services start alike.
#[derive(Debug, Clone, Copy, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Framework {
    Fastapi,
    Express,
    Django,
    Spring,
    Actix,
}

impl Framework {
    /// Returns the file: how the service starts is the framework's, the rest is the same for all.
    fn file(self) -> String {
        let start = match self {
            Self::Fastapi => include_str!("init/fastapi.toml"),
            Self::Express => include_str!("init/express.toml"),
            Self::Django => include_str!("init/django.toml"),
            Self::Spring => include_str!("init/spring.toml"),
            Self::Actix => include_str!("init/actix.toml"),
        };
        [include_str!("init/begin.toml"), start, include_str!("init/end.toml")].concat()
    }
}

/// Writes the file of a service; returns what to do with it. Overwrites nothing.
pub(super) fn write_file(framework: Framework, path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    if path.exists() {
        let framework: &str = framework.into();
        bail!("{shown} exists: name another one, holdfast judge service --init {framework} FILE");
    }
    fs::write(path, framework.file()).with_context(|| format!("can't write {shown}"))?;
    Ok(format!(
        "{shown} describes a shop. Change it into yours: how an instance starts, how an item is\n\
         made, one order, and the queries of your tables. Then:\n\n  holdfast judge service {shown}\n"
    ))
}

#[cfg(test)]
mod tests {
    use holdfast_services::TempFolder;

    use super::*;
    use crate::service::file::ServiceFile;

    const GUIDE: &str = include_str!("../../../../docs/SERVICE.md");

    #[test]
    fn new_files_and_that_of_the_guide_are_right() {
        let folder = TempFolder::create().expect("a folder");
        for framework in Framework::value_variants() {
            let path = folder.own_file(&format!("{framework:?}.toml"));
            write_file(*framework, &path).expect("it is new");
            ServiceFile::read(&path, &[]).expect("it is right");
            write_file(*framework, &path).expect_err("it is there");
        }

        let (_, rest) = GUIDE.split_once("```toml\n").expect("the guide shows a file");
        let path = folder.own_file("guide.toml");
        fs::write(&path, rest.split("```").next().unwrap_or_default()).expect("a file");
        ServiceFile::read(&path, &[]).expect("it is right");
    }
}
