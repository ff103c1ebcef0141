//! The texts of pages, lessons and commands, in every language, from one catalogue: `locales/`.
//!
//! The catalogue is compiled into the program. Tests: `tests/tidy/messages.rs` finds missing,
//! unused and differing messages.

use std::borrow::Cow;
use std::collections::HashMap;

pub use fluent_templates::fluent_bundle::FluentValue;
use fluent_templates::{LanguageIdentifier, Loader as _, langid, static_loader};

static ENGLISH: LanguageIdentifier = langid!("en");
static CHINESE: LanguageIdentifier = langid!("zh");

static_loader! {
    static CATALOGUE = {
        locales: "./locales",
        fallback_language: "en",
        // Isolation marks would show in a terminal; pages isolate names with `<bdi>`.
        customise: |bundle| bundle.set_use_isolating(false),
    };
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    English,
    Chinese,
}

impl Language {
    pub const ALL: [Self; 2] = [Self::English, Self::Chinese];

    /// Returns the language of a tag such as `zh-Hans-CN`; `None` without an edition in it.
    pub fn of_tag(tag: &str) -> Option<Self> {
        let primary = tag.split('-').next().unwrap_or(tag);
        Self::ALL.into_iter().find(|language| language.tag().eq_ignore_ascii_case(primary))
    }

    /// Returns the language of the terminal: that of `LC_ALL`, `LC_MESSAGES` or `LANG`.
    pub fn of_environment() -> Self {
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        locale.and_then(|locale| Self::of_locale(&locale)).unwrap_or_default()
    }

    /// Returns the language of a POSIX locale such as `zh_CN.UTF-8`.
    fn of_locale(locale: &str) -> Option<Self> {
        Self::of_tag(locale.split(['_', '.', '@']).next().unwrap_or(locale))
    }

    /// Returns the language tag for `lang` attributes and cookies.
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh",
        }
    }

    /// Returns the name of the language in the language itself.
    pub fn own_name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Chinese => "中文",
        }
    }

    fn identifier(self) -> &'static LanguageIdentifier {
        match self {
            Self::English => &ENGLISH,
            Self::Chinese => &CHINESE,
        }
    }

    /// Returns the message `id`. A message that a language lacks is returned in English.
    pub fn text(self, id: &str) -> String {
        CATALOGUE.lookup(self.identifier(), id)
    }

    /// Returns the message `id` with its variables replaced.
    pub fn text_with(self, id: &str, variables: &[(&'static str, FluentValue<'_>)]) -> String {
        let variables: HashMap<Cow<'static, str>, FluentValue<'_>> =
            variables.iter().map(|(name, value)| (Cow::Borrowed(*name), value.clone())).collect();
        CATALOGUE.lookup_with_args(self.identifier(), id, &variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_with_regions_choose_language() {
        assert_eq!(Language::of_tag("zh-Hans-CN"), Some(Language::Chinese));
        assert_eq!(Language::of_tag("EN-gb"), Some(Language::English));
        assert_eq!(Language::of_tag("fr"), None);
        assert_eq!(Language::of_locale("zh_CN.UTF-8"), Some(Language::Chinese));
        assert_eq!(Language::of_locale("C.UTF-8"), None);
    }

    #[test]
    fn messages_differ_by_language_and_number() {
        let left = |language: Language, units: i64| {
            language.text_with("shop-left", &[("units", units.into())])
        };
        assert_eq!(left(Language::English, 1), "1 left");
        assert_eq!(left(Language::Chinese, 3), "剩 3 件");
        assert_ne!(Language::English.text("nav-shop"), Language::Chinese.text("nav-shop"));
    }
}
