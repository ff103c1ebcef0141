//! The form of an item's settings: what it was filled in with, what it changes, and why it was
//! rejected. Beside each input it says what the setting was when the form was loaded.

use super::log::in_words;
use crate::web::middleware::FormFields;
use crate::web::pages::format::parse_cents;
use crate::web::pages::rejection::FormErrors;
use holdfast_base::messages::Language;
use holdfast_shop::command::edit_item::{ItemFields, MAX_LIMIT};
use holdfast_shop::model::Item;

/// The settings of an item, and the names of their inputs.
pub(super) const INPUTS: [(&str, &str); 6] = [
    ("name", "name"),
    ("name_zh", "name_zh"),
    ("price_cents", "price"),
    ("description", "description"),
    ("hidden", "hidden"),
    ("limit_per_user", "limit_per_user"),
];
/// Begins the name of an input that says what a setting was.
pub(super) const WAS: &str = "was_";

/// Returns what the form changes, and what those settings were when it was loaded; or what of it is
/// wrong.
pub(super) fn changes(
    form: &FormFields,
    language: Language,
) -> Result<(ItemFields, ItemFields), FormErrors> {
    let (set, errors) = settings(form, "", language);
    if !errors.is_empty() {
        return Err(errors);
    }

    // Only what was edited: another admin may have changed the rest since.
    let edited = |input: &str| is_edited(form, input);
    let set = ItemFields {
        name: set.name.filter(|_| edited("name")),
        // With a new name, which removes it otherwise.
        name_zh: set.name_zh.filter(|_| edited("name") || edited("name_zh")),
        price_cents: set.price_cents.filter(|_| edited("price")),
        description: set.description.filter(|_| edited("description")),
        hidden: set.hidden.filter(|_| edited("hidden")),
        limit_per_user: set.limit_per_user.filter(|_| edited("limit_per_user")),
    };
    Ok((set, settings_before(form, language)))
}

fn is_edited(form: &FormFields, input: &str) -> bool {
    text_of(form, input) != text_of(form, &format!("{WAS}{input}"))
}

/// Returns what the settings were when the form was loaded; none if that cannot be read.
fn settings_before(form: &FormFields, language: Language) -> ItemFields {
    let (was, errors) = settings(form, WAS, language);
    if errors.is_empty() { was } else { ItemFields::default() }
}

/// Reads all settings from the inputs whose names begin with `prefix`; with what is wrong with
/// them, each beside its field.
pub(super) fn settings(
    form: &FormFields,
    prefix: &str,
    language: Language,
) -> (ItemFields, FormErrors) {
    let text = |input: &str| text_of(form, &format!("{prefix}{input}"));
    let (name, price, limit) = (text("name"), text("price"), text("limit_per_user"));
    let limit = match limit.trim() {
        "" => Ok(None),
        number => number.parse().map(Some),
    };
    // What it was is compared as it is.
    let as_typed = |text: String| if prefix.is_empty() { text.trim().to_owned() } else { text };
    let fields = ItemFields {
        name: Some(as_typed(name)),
        name_zh: Some(Some(as_typed(text("name_zh"))).filter(|name| !name.is_empty())),
        price_cents: parse_cents(&price),
        description: Some(text("description")),
        hidden: Some(!text("hidden").is_empty()),
        limit_per_user: limit.clone().ok(),
    };

    let mut errors = explain(FormErrors::of_fields(fields.invalid(), language), language);
    if fields.price_cents.is_none() {
        errors = errors.and("price_cents", &language.text("admin-price-rule"));
    }
    if limit.is_err() {
        errors = errors.and("limit_per_user", &limit_rule(language));
    }
    (fields, errors)
}

/// Returns the text of an input, with the line breaks that are stored: a browser sends others.
fn text_of(form: &FormFields, input: &str) -> String {
    form.text(input).replace("\r\n", "\n")
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
        "name_zh" => item.name_zh.clone().unwrap_or_default(),
        "price" => format!("{}.{:02}", item.price_cents / 100, item.price_cents % 100),
        "description" => item.description.clone(),
        "hidden" if item.hidden => "yes".to_owned(),
        "limit_per_user" => item.limit_per_user.map(|limit| limit.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Explains why an edit was rejected. If another admin has changed settings since, the form takes
/// over what they are now: sending it again replaces that on purpose.
pub(super) fn explain_rejection(
    form: &mut FormFields,
    errors: FormErrors,
    item: &Item,
    language: Language,
) -> FormErrors {
    let mut errors = explain(errors, language);
    let was = settings_before(form, language);
    let settings = ItemFields::of(item).values().into_iter().zip(was.values());
    for (((field, now), (_, was)), (_, input)) in settings.zip(INPUTS) {
        let is_changed = was.is_some() && was != now;
        if !is_changed || !is_edited(form, input) || text_of(form, input) == shown(item, input) {
            continue;
        }
        let now = in_words(field, &now.unwrap_or_default(), language);
        let text = language.text_with("admin-edit-changed", &[("now", now.into())]);
        let name = format!("{WAS}{input}");
        form.set(&name, shown(item, input));
        errors = errors.and(field, &text);
    }
    errors
}

/// Replaces the API's reason of an error by the rule of its field.
pub(super) fn explain(errors: FormErrors, language: Language) -> FormErrors {
    errors
        .explain("name", &language.text("admin-name-rule"))
        .explain("name_zh", &language.text("admin-name-rule"))
        .explain("price_cents", &language.text("admin-price-rule"))
        .explain("stock", &language.text("admin-stock-rule"))
        .explain("description", &language.text("admin-description-rule"))
        .explain("limit_per_user", &limit_rule(language))
}
