//! The API reference: a page rendered from the OpenAPI document, which works without JavaScript.
//!
//! The texts of the document are in English in every language.

use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde_json::Value;

use super::layout::Layout;
use super::respond::html;
use crate::web::{HttpResult, openapi};

const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

static REFERENCE: LazyLock<Reference> = LazyLock::new(|| {
    let document = serde_json::to_value(openapi::description()).unwrap_or_default();
    Reference::of(&document)
});

#[derive(Debug, Template)]
#[template(path = "api_reference.html")]
struct ApiReferencePage {
    layout: Layout,
    reference: &'static Reference,
}

#[derive(Debug)]
struct Reference {
    about: String,
    /// Operations by tag.
    groups: Vec<(String, Vec<Operation>)>,
    schemas: Vec<Schema>,
}

#[derive(Debug)]
struct Operation {
    id: String,
    method: String,
    path: String,
    summary: String,
    description: String,
    needs_session: bool,
    parameters: Vec<Field>,
    body: Option<TypeText>,
    /// Status, meaning and type of each response that is no problem.
    responses: Vec<(String, String, Option<TypeText>)>,
    problems: Vec<String>,
}

#[derive(Debug)]
struct Schema {
    name: String,
    kind: TypeText,
    description: String,
    fields: Vec<Field>,
}

/// A parameter or a property.
#[derive(Debug)]
struct Field {
    name: String,
    /// The place of a parameter: `path`, `query` or `header`.
    place: String,
    is_required: bool,
    kind: TypeText,
    description: String,
}

/// A type in words; `schema` is the schema to link to.
#[derive(Debug, Default)]
struct TypeText {
    words: String,
    schema: Option<String>,
}

pub async fn show(request: HttpRequest) -> HttpResult {
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &ApiReferencePage { layout, reference: &REFERENCE })
}

impl Reference {
    fn of(document: &Value) -> Self {
        let mut groups: Vec<(String, Vec<Operation>)> = Vec::new();
        for (path, item) in members(&document["paths"]) {
            for method in METHODS {
                let Some(operation) = item.get(method) else { continue };
                let tag = text(&operation["tags"][0]);
                let operation = Operation::of(method, path, operation);
                match groups.iter_mut().find(|(name, _)| *name == tag) {
                    Some((_, operations)) => operations.push(operation),
                    None => groups.push((tag, vec![operation])),
                }
            }
        }
        let schemas = members(&document["components"]["schemas"]);
        Self {
            about: text(&document["info"]["description"]),
            groups,
            schemas: schemas.map(|(name, schema)| Schema::of(name, schema)).collect(),
        }
    }
}

impl Operation {
    fn of(method: &str, path: &str, operation: &Value) -> Self {
        let (problems, results): (Vec<_>, Vec<_>) =
            members(&operation["responses"]).partition(|(_, response)| {
                response["content"].get("application/problem+json").is_some()
            });
        let result = |(status, response): (&String, &Value)| {
            (status.clone(), text(&response["description"]), content_type(response))
        };
        Self {
            id: text(&operation["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            summary: text(&operation["summary"]),
            description: text(&operation["description"]),
            needs_session: operation.get("security").is_none(),
            parameters: elements(&operation["parameters"]).map(parameter).collect(),
            body: content_type(&operation["requestBody"]),
            responses: results.into_iter().map(result).collect(),
            problems: problems.into_iter().map(|(status, _)| status.clone()).collect(),
        }
    }
}

impl Schema {
    fn of(name: &str, schema: &Value) -> Self {
        // The parts of `allOf` that are not references have the fields of the schema itself.
        let parts = elements(&schema["allOf"]).chain([schema]);
        let fields = parts.flat_map(|part| {
            let required: Vec<String> = elements(&part["required"]).map(text).collect();
            members(&part["properties"]).map(move |(name, property)| Field {
                is_required: required.contains(name),
                place: String::new(),
                kind: type_text(property),
                description: text(&property["description"]),
                name: name.clone(),
            })
        });
        Self {
            name: name.to_owned(),
            kind: type_text(schema),
            description: text(&schema["description"]),
            fields: fields.collect(),
        }
    }
}

fn parameter(parameter: &Value) -> Field {
    Field {
        name: text(&parameter["name"]),
        place: text(&parameter["in"]),
        is_required: parameter["required"] == true,
        kind: type_text(&parameter["schema"]),
        description: text(&parameter["description"]),
    }
}

/// Returns the type of the content of a body or a response.
fn content_type(body: &Value) -> Option<TypeText> {
    let (media, content) = members(&body["content"]).next()?;
    match content.get("schema") {
        Some(schema) => Some(type_text(schema)),
        None => Some(TypeText { words: media.clone(), schema: None }),
    }
}

fn type_text(schema: &Value) -> TypeText {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return TypeText { words: name.to_owned(), schema: Some(name.to_owned()) };
    }
    for (key, separator) in [("oneOf", " or "), ("allOf", " and ")] {
        if let Some(parts) = schema[key].as_array() {
            let parts: Vec<TypeText> = parts.iter().map(type_text).collect();
            let words: Vec<&str> = parts.iter().map(|part| part.words.as_str()).collect();
            let words = words.join(separator);
            return TypeText { words, schema: parts.into_iter().find_map(|part| part.schema) };
        }
    }
    if let Some(items) = schema.get("items") {
        let TypeText { words, schema } = type_text(items);
        return TypeText { words: format!("array of {words}"), schema };
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(text).collect();
        return TypeText { words: values.join(" | "), schema: None };
    }
    let mut words = match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::String(name) => name.clone(),
        _ => "any value".to_owned(),
    };
    if let Some(format) = schema["format"].as_str().filter(|format| !format.starts_with("int")) {
        words = format!("{words} ({format})");
    }
    let bounds =
        [("minimum", "≥"), ("maximum", "≤"), ("minLength", "length ≥"), ("maxLength", "length ≤")];
    for (key, sign) in bounds {
        if let Some(bound) = schema.get(key) {
            words = format!("{words}, {sign} {bound}");
        }
    }
    TypeText { words, schema: None }
}

fn text(value: &Value) -> String {
    value.as_str().map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
