//! Messages as parts that a script fills in: of Fluent, what the catalogue uses.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fluent_bundle::FluentResource;
use fluent_syntax::ast::{
    Entry, Expression, InlineExpression, Pattern, PatternElement, VariantKey,
};
use serde::Serialize;

use crate::messages::{CHINESE, ENGLISH, Language};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MessagePart {
    Text(String),
    Variable {
        var: String,
    },
    /// One of the variants: that of the variable's value or, for a number, of its plural category.
    Selection {
        select: String,
        variants: BTreeMap<String, Vec<MessagePart>>,
        default: String,
    },
}

/// The parts of messages by their ids.
type Parts = BTreeMap<String, Vec<MessagePart>>;

static ENGLISH_PARTS: LazyLock<Parts> = LazyLock::new(|| read(ENGLISH));
static CHINESE_PARTS: LazyLock<Parts> = LazyLock::new(|| read(CHINESE));

impl Language {
    /// Returns the messages whose ids begin with one of `prefixes`. One that a language lacks is
    /// returned in English.
    pub fn parts(self, prefixes: &[&str]) -> BTreeMap<&'static str, &'static [MessagePart]> {
        let own: &Parts = match self {
            Self::English => &ENGLISH_PARTS,
            Self::Chinese => &CHINESE_PARTS,
        };

        let all = ENGLISH_PARTS.iter().chain(own);
        let chosen = all.filter(|(id, _)| prefixes.iter().any(|prefix| id.starts_with(prefix)));
        chosen.map(|(id, parts)| (id.as_str(), parts.as_slice())).collect()
    }
}

fn read(files: &[&str]) -> Parts {
    let mut messages = Parts::new();
    for file in files {
        let resource = FluentResource::try_new((*file).to_owned());
        for entry in resource.unwrap_or_else(|(resource, _)| resource).entries() {
            if let Entry::Message(message) = entry
                && let Some(parts) = message.value.as_ref().and_then(parts_of)
            {
                messages.insert(message.id.name.to_owned(), parts);
            }
        }
    }
    messages
}

/// Returns `None` if the pattern has what a script does not understand.
fn parts_of(pattern: &Pattern<&str>) -> Option<Vec<MessagePart>> {
    pattern.elements.iter().map(part).collect()
}

fn part(element: &PatternElement<&str>) -> Option<MessagePart> {
    let expression = match element {
        PatternElement::TextElement { value } => {
            return Some(MessagePart::Text((*value).to_owned()));
        }
        PatternElement::Placeable { expression } => expression,
    };

    match expression {
        Expression::Inline(InlineExpression::StringLiteral { value }) => {
            Some(MessagePart::Text((*value).to_owned()))
        }
        Expression::Inline(inline) => Some(MessagePart::Variable { var: variable(inline)? }),
        Expression::Select { selector, variants } => {
            let name = |key: &VariantKey<&str>| match key {
                VariantKey::Identifier { name } => (*name).to_owned(),
                VariantKey::NumberLiteral { value } => (*value).to_owned(),
            };
            let default = variants.iter().find(|variant| variant.default)?;
            let filled = variants.iter().map(|it| Some((name(&it.key), parts_of(&it.value)?)));
            Some(MessagePart::Selection {
                select: variable(selector)?,
                variants: filled.collect::<Option<_>>()?,
                default: name(&default.key),
            })
        }
    }
}

fn variable(inline: &InlineExpression<&str>) -> Option<String> {
    match inline {
        InlineExpression::VariableReference { id } => Some(id.name.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_parts() {
        for (language, files) in [(Language::English, ENGLISH), (Language::Chinese, CHINESE)] {
            let starts_message = |line: &&str| {
                line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains('=')
            };
            let count = files.iter().flat_map(|file| file.lines()).filter(starts_message).count();
            assert_eq!(language.parts(&[""]).len(), count, "{language:?}");
        }
    }

    #[test]
    fn selections_have_variants_and_default() {
        let parts = Language::English.parts(&["scheduler-oversold"]);
        let parts = serde_json::to_value(parts).unwrap();
        let expected = serde_json::json!({
            "scheduler-oversold": [{
                "select": "units",
                "variants": {
                    "one": ["1 unit sold twice"],
                    "other": [{ "var": "units" }, " units sold twice"],
                },
                "default": "other",
            }],
        });
        assert_eq!(parts, expected);
    }
}
