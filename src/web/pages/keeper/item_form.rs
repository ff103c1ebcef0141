//! The form of an item's settings: what it was filled in with, what it changes, and why it was
//! rejected. Beside each input it says what the setting was when the form was loaded.

use super::log::in_words;
use crate::web::middleware::FormFields;
use crate::web::pages::format::parse_cents;
use crate::web::pages::rejection::FormErrors;
use holdfast_base::messages::Language;
use holdfast_shop::command::MAX_AMOUNT;
use holdfast_shop::command::edit_item::{ItemFields, MAX_LIMIT};
use holdfast_shop::model::Item;

/// The settings of an item, and the names of their inputs.
pub(super) const INPUTS: [(&str, &str); 5] = [
    ("name", "name"),
    ("price_cents", "price"),
    ("description", "description"),
    ("hidden", "hidden"),
    ("limit_per_user", "limit_per_user"),
];
/// Begins the name of an input that says what a setting was.
pub(super) const WAS: &str = "was_";

/// Returns what the form changes, and what those settings were when it was loaded.
pub(super) fn changes(
    form: &FormFields,
    language: Language,
) -> Result<(ItemFields, ItemFields), FormErrors> {
    let set = settings(form, "", language)?;
    let was = settings(form, WAS, language).unwrap_or_default();

    // Only what was edited: another keeper may have changed the rest since.
    let edited = |input: &str| text_of(form, input) != text_of(form, &format!("{WAS}{input}"));
    let set = ItemFields {
        name: set.name.filter(|_| edited("name")),
        price_cents: set.price_cents.filter(|_| edited("price")),
        description: set.description.filter(|_| edited("description")),
        hidden: set.hidden.filter(|_| edited("hidden")),
        limit_per_user: set.limit_per_user.filter(|_| edited("limit_per_user")),
    };
    Ok((set, was))
}

/// Reads all settings from the inputs whose names begin with `prefix`.
fn settings(form: &FormFields, prefix: &str, language: Language) -> Result<ItemFields, FormErrors> {
    let text = |input: &str| text_of(form, &format!("{prefix}{input}"));
    let name = text("name");
    Ok(ItemFields {
        // What it was is compared as it is.
        name: Some(if prefix.is_empty() { name.trim().to_owned() } else { name }),
        price_cents: Some(price(&text("price"), language)?),
        description: Some(text("description")),
        hidden: Some(!text("hidden").is_empty()),
        limit_per_user: Some(limit(&text("limit_per_user"), language)?),
    })
}

/// Returns the text of an input, with the line breaks that are stored: a browser sends others.
pub(super) fn text_of(form: &FormFields, input: &str) -> String {
    form.text(input).replace("\r\n", "\n")
}

pub(super) fn price(text: &str, language: Language) -> Result<i64, FormErrors> {
    let cents = parse_cents(text).filter(|cents| *cents <= MAX_AMOUNT);
    cents.ok_or_else(|| FormErrors::field("price_cents", &language.text("keeper-price-rule")))
}

/// Reads a limit; blank for none.
pub(super) fn limit(text: &str, language: Language) -> Result<Option<i64>, FormErrors> {
    match text.trim() {
        "" => Ok(None),
        number => number
            .parse()
            .map(Some)
            .map_err(|_| FormErrors::field("limit_per_user", &limit_rule(language))),
    }
}

fn limit_rule(language: Language) -> String {
    language.text_with("shop-limit-rule", &[("max", MAX_LIMIT.into())])
}

/// Fills in the form of an item: each input, and beside it what its setting was.
pub(super) fn filled_in(item: &Item) -> FormFields {
    let shown = INPUTS.iter().map(|(_, input)| (*input, shown(item, input)));
    let pairs = shown.flat_map(|(input, text)| {
        [(input.to_owned(), text.clone()), (format!("{WAS}{input}"), text)]
    });
    FormFields(pairs.collect())
}

fn shown(item: &Item, input: &str) -> String {
    match input {
        "name" => item.name.clone(),
        "price" => format!("{}.{:02}", item.price_cents / 100, item.price_cents % 100),
        "description" => item.description.clone(),
        "hidden" if item.hidden => "yes".to_owned(),
        "limit_per_user" => item.limit_per_user.map(|limit| limit.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Explains why an edit was rejected. If another keeper has changed the setting since, the form
/// takes over what it is now: sending it again replaces that on purpose.
pub(super) fn explain_rejection(
    form: &mut FormFields,
    errors: FormErrors,
    item: &Item,
    language: Language,
) -> FormErrors {
    let was = settings(form, WAS, language).unwrap_or_default();
    let settings = ItemFields::of(item).values().into_iter().zip(was.values());
    for (((field, now), (_, was)), (_, input)) in settings.zip(INPUTS) {
        if errors.of(field).is_none() || was == now {
            continue;
        }
        let now = in_words(field, &now.unwrap_or_default(), language);
        let text = language.text_with("keeper-edit-changed", &[("now", now.into())]);
        let name = format!("{WAS}{input}");
        form.0.retain(|(field, _)| *field != name);
        form.0.push((name, shown(item, input)));
        return errors.explain(field, &text);
    }
    explain(errors, language)
}

/// Replaces the API's reason of an error by the rule of its field.
pub(super) fn explain(errors: FormErrors, language: Language) -> FormErrors {
    errors
        .explain("name", &language.text("keeper-name-rule"))
        .explain("price_cents", &language.text("keeper-price-rule"))
        .explain("stock", &language.text("keeper-stock-rule"))
        .explain("description", &language.text("keeper-description-rule"))
        .explain("limit_per_user", &limit_rule(language))
}
