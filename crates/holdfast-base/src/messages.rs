//! The texts of pages, lessons and commands, in every language, from one catalogue: `locales/`.
//!
//! The catalogue is compiled into the program. Tests: `tests/tidy/messages.rs` finds missing,
//! unused and differing messages.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::LazyLock;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource};
use serde::{Deserialize, Serialize};

pub use crate::message_parts::MessagePart;
pub use fluent_bundle::FluentValue;

macro_rules! catalogue {
    ($($file:literal),*) => {
        pub(crate) const ENGLISH: &[&str] = &[$(include_str!(concat!("../../../locales/en/", $file, ".ftl"))),*];
        pub(crate) const CHINESE: &[&str] = &[$(include_str!(concat!("../../../locales/zh/", $file, ".ftl"))),*];
    };
}

catalogue! {
    "admin", "choose", "class", "common", "course", "glossary", "goods", "judge", "lab",
    "lessons", "problems", "race", "reasons", "runs", "scheduler", "service", "shop", "site",
    "strategies", "swimlane", "terminal"
}

type Bundle = FluentBundle<FluentResource>;

static ENGLISH_EDITION: LazyLock<Bundle> = LazyLock::new(|| Language::English.compile(ENGLISH));
static CHINESE_EDITION: LazyLock<Bundle> = LazyLock::new(|| Language::Chinese.compile(CHINESE));

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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

    fn of_locale(locale: &str) -> Option<Self> {
        Self::of_tag(locale.split(['_', '.', '@']).next().unwrap_or(locale))
    }

    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh",
        }
    }

    pub fn own_name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Chinese => "中文",
        }
    }

    /// Returns what separates a sentence from the next one, or from a link after it.
    pub fn space(self) -> &'static str {
        match self {
            Self::English => " ",
            Self::Chinese => "",
        }
    }

    /// Returns the colon between a name and what is said about it.
    pub fn colon(self) -> &'static str {
        match self {
            Self::English => ": ",
            Self::Chinese => "：",
        }
    }

    pub fn list(self, items: &[impl AsRef<str>]) -> String {
        let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
        items.join(match self {
            Self::English => ", ",
            Self::Chinese => "、",
        })
    }

    fn edition(self) -> &'static Bundle {
        match self {
            Self::English => &ENGLISH_EDITION,
            Self::Chinese => &CHINESE_EDITION,
        }
    }

    /// Errors in the files leave messages out, which a test finds.
    fn compile(self, files: &[&str]) -> Bundle {
        let mut edition = FluentBundle::new_concurrent(self.tag().parse().into_iter().collect());
        // Isolation marks would show in a terminal; pages isolate names with `<bdi>`.
        edition.set_use_isolating(false);

        for file in files {
            let resource = FluentResource::try_new((*file).to_owned());
            let _ = edition.add_resource(resource.unwrap_or_else(|(resource, _)| resource));
        }
        edition
    }

    /// Returns the message `id`. A message that a language lacks is returned in English.
    pub fn text(self, id: &str) -> String {
        self.text_with(id, &[])
    }

    pub fn text_with(self, id: &str, variables: &[(&'static str, FluentValue<'_>)]) -> String {
        let arguments: FluentArgs<'_> =
            variables.iter().map(|(name, value)| (*name, value.clone())).collect();
        self.format_or_english(id, &arguments)
            .unwrap_or_else(|| format!("Unknown localization key: {id:?}"))
    }

    fn format_or_english(self, id: &str, arguments: &FluentArgs<'_>) -> Option<String> {
        self.format(id, arguments).or_else(|| Self::English.format(id, arguments))
    }

    /// Returns the message `id`; `None` if the language lacks it, or it needs other arguments.
    fn format(self, id: &str, arguments: &FluentArgs<'_>) -> Option<String> {
        let pattern = self.edition().get_message(id)?.value()?;
        let mut errors = Vec::new();
        let text = self.edition().format_pattern(pattern, Some(arguments), &mut errors);
        errors.is_empty().then(|| text.into_owned())
    }
}

/// Returns whether a character is Chinese, or punctuation of Chinese texts.
pub fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3000}'..='\u{9fff}' | '\u{ff00}'..='\u{ff60}')
}

/// A message of the catalogue with its arguments, stored to be formatted in any language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    id: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    arguments: BTreeMap<String, Text>,
}

/// A text that is stored, and an argument of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// A number or a name, the same in every language.
    Plain(String),
    Message(Message),
    List(Vec<Text>),
}

impl Message {
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), arguments: BTreeMap::new() }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Text>) -> Self {
        self.arguments.insert(name.to_owned(), value.into());
        self
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns another message with the same arguments.
    #[must_use]
    pub fn with_id(&self, id: &str) -> Self {
        Self { id: id.to_owned(), arguments: self.arguments.clone() }
    }

    /// Formats the message; `None` if the catalogue does not have it, or it needs other arguments.
    pub fn format(&self, language: Language) -> Option<String> {
        let arguments = self.arguments.iter();
        let arguments: FluentArgs<'_> =
            arguments.map(|(name, value)| (name.as_str(), value.variable(language))).collect();
        language.format_or_english(&self.id, &arguments)
    }

    /// Returns the text, in English where it is missing; one that is missing there, too, is a bug
    /// and shows its id.
    pub fn text(&self, language: Language) -> String {
        self.format(language).unwrap_or_else(|| self.id.clone())
    }

    pub fn english(&self) -> String {
        self.text(Language::English)
    }
}

impl Text {
    /// Returns the text in a language; the parts of a list are separated by a dot in every
    /// language.
    pub fn text(&self, language: Language) -> String {
        match self {
            Self::Plain(text) => text.clone(),
            Self::Message(message) => message.text(language),
            Self::List(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.text(language)).collect();
                parts.join(" · ")
            }
        }
    }

    pub fn english(&self) -> String {
        self.text(Language::English)
    }

    /// Returns the value as a variable. A whole number is passed as one, for the choice of plurals;
    /// not a large one, such as a fence of another lock, whose last digits Fluent would drop.
    fn variable(&self, language: Language) -> FluentValue<'static> {
        let text = self.text(language);
        match text.parse::<i64>() {
            Ok(number) if number.to_string() == text && text.len() < 16 => number.into(),
            _ => text.into(),
        }
    }
}

impl<T: Display> From<T> for Text {
    fn from(value: T) -> Self {
        Self::Plain(value.to_string())
    }
}

impl From<Message> for Text {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl From<&Message> for Text {
    fn from(message: &Message) -> Self {
        Self::Message(message.clone())
    }
}

impl From<&Text> for Text {
    fn from(text: &Text) -> Self {
        text.clone()
    }
}

/// Makes a [`Message`]: `message!("run-failed", error = cause)`. A name without a value takes the
/// variable of that name.
#[macro_export]
macro_rules! message {
    ($id:literal $(, $name:ident $(= $value:expr)?)* $(,)?) => {
        $crate::messages::Message::new($id)
            $(.with(stringify!($name), $crate::messages::message!(@value $name $(, $value)?)))*
    };
    (@value $name:ident) => { &$name };
    (@value $name:ident, $value:expr) => { $value };
}
pub use message;

#[cfg(test)]
mod tests {
    use fluent_syntax::ast::Entry;

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
    fn stored_messages_are_formatted_or_unknown() {
        let sales = message!("run-sales", sold = 2, reduced = 1);
        let verdict = message!("run-watchdog-verdict", sales);
        let json = serde_json::to_string(&verdict).unwrap();
        let read: Message = serde_json::from_str(&json).unwrap();
        assert_eq!(read, verdict);
        assert!(read.english().ends_with("2 sold, stock reduced by 1."), "{}", read.english());
        let chinese = read.format(Language::Chinese).unwrap();
        assert!(chinese.contains('2') && !chinese.contains("sold"), "{chinese}");
        assert_eq!(Message::new("run-of-a-later-version").format(Language::Chinese), None);

        let large = message!("judge-found-with-fence", fence = i64::MAX, found = "");
        assert!(large.english().contains("9223372036854775807"), "{}", large.english());
    }

    #[test]
    fn every_message_of_every_file_is_known() {
        for language in Language::ALL {
            let locales = concat!(env!("CARGO_MANIFEST_DIR"), "/../../locales");
            for file in std::fs::read_dir(format!("{locales}/{}", language.tag())).unwrap() {
                let path = file.unwrap().path();
                let resource = FluentResource::try_new(std::fs::read_to_string(&path).unwrap());
                for entry in resource.expect("a file without errors").entries() {
                    let Entry::Message(message) = entry else { continue };
                    let id = message.id.name;
                    assert!(language.edition().has_message(id), "{}: {id}", path.display());
                }
            }
        }
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
