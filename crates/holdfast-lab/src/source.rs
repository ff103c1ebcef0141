//! Source files that a lesson shows, as compiled: a strategy's or another one. The catalogue has a
//! line about each, `locales/*/strategies.ftl`.

use holdfast_base::messages::Language;
use holdfast_shop::Strategy;

#[derive(Debug, Clone, Copy)]
pub struct LessonSource {
    pub name: &'static str,
    pub path: &'static str,
    text: &'static str,
}

/// Declares [`FILES`]: a file's name, and its path from the root of the repository.
macro_rules! files {
    ($($name:literal: $path:literal;)*) => {
        const FILES: &[LessonSource] = &[$(LessonSource {
            name: $name,
            path: $path,
            text: include_str!(concat!("../../../", $path)),
        }),*];
    };
}

files! {
    "claim.lua": "crates/holdfast-lab/src/claim.lua";
    "conditional_update.rs": "crates/holdfast-shop/src/store/conditional_update.rs";
    "deduct.lua": "crates/holdfast-shop/src/strategy/pre_deduct/deduct.lua";
    "deducted.rs": "crates/holdfast-shop/src/strategy/pre_deduct/statements.rs";
    "expire_orders.rs": "crates/holdfast-shop/src/command/expire_orders.rs";
    "place.rs": "crates/holdfast-shop/src/store/place.rs";
    "place_order.rs": "crates/holdfast-shop/src/command/place_order.rs";
    "priority.rs": "crates/holdfast-shop/src/locks/priority.rs";
    "read.rs": "crates/holdfast-shop/src/store/read.rs";
    "remove_hash.rs": "crates/holdfast-lab/src/remove_hash.rs";
    "units.rs": "crates/holdfast-shop/src/strategy/units/statements.rs";
}

/// Returns the file called `name`, or the source of the strategy called `name`.
pub fn of(name: &str) -> Option<LessonSource> {
    let file = FILES.iter().copied().find(|file| file.name == name);
    file.or_else(|| Strategy::named(name).map(of_strategy))
}

fn of_strategy(strategy: &'static Strategy) -> LessonSource {
    LessonSource { name: strategy.name, path: strategy.source, text: strategy.code }
}

pub fn about_strategy(strategy: &Strategy, language: Language) -> String {
    language.text(&format!("strategy-{}", strategy.name))
}

impl LessonSource {
    pub fn about(&self, language: Language) -> String {
        match Strategy::named(self.name) {
            Some(strategy) => about_strategy(strategy, language),
            None => language.text(&format!("source-{}", self.name.replace(['.', '_'], "-"))),
        }
    }

    pub fn lines(&self) -> Vec<&'static str> {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_shop::strategy::STRATEGIES;

    #[test]
    fn shown_sources_exist_and_have_headers() {
        for source in FILES.iter().copied().chain(STRATEGIES.iter().map(of_strategy)) {
            let lines = source.lines();
            let says = lines[0].starts_with("//!") || lines[0].starts_with("--");
            assert!(lines.len() > 15 && says, "{}", source.path);
            assert!(!lines.contains(&"#[cfg(test)]"));
            let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
            assert!(root.join(source.path).exists(), "{}", source.path);
            let [english, chinese] = Language::ALL.map(|language| source.about(language));
            assert!(english != chinese && !english.contains("strategy-"), "{english}");
            assert!(!english.contains("source-"), "{english}");
        }
    }
}
