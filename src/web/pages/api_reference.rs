//! The API reference: a page rendered from the OpenAPI document, which works without JavaScript.
//!
//! The document is in English, also on a page whose frame is in Chinese.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use serde_json::Value;

use super::layout::Layout;
use super::respond::html;
use crate::web::{HttpResult, openapi};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(openapi::description()).unwrap_or_default());

#[derive(Debug, Template)]
#[template(path = "api_reference.html")]
struct ApiReferencePage {
    layout: Layout,
    document: &'static Value,
}

#[derive(Debug)]
struct ApiOperation {
    method: String,
    path: &'static str,
    json: &'static Value,
}

impl ApiReferencePage {
    fn groups(&self) -> BTreeMap<&'static str, Vec<ApiOperation>> {
        let mut groups: BTreeMap<_, Vec<ApiOperation>> = BTreeMap::new();
        for (path, item) in members(&self.document["paths"]) {
            for (method, json) in members(item) {
                let operation = ApiOperation { method: method.to_uppercase(), path, json };
                groups.entry(text(&json["tags"][0])).or_default().push(operation);
            }
        }
        groups
    }
}

pub(crate) async fn show(request: HttpRequest) -> HttpResult {
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &ApiReferencePage { layout, document: &DOCUMENT })
}

fn is_problem(response: &Value) -> bool {
    response["content"].get("application/problem+json").is_some()
}

/// Returns the schema of the content of a body or a response; null without one.
fn content_schema(body: &Value) -> &Value {
    members(&body["content"]).next().map_or(&Value::Null, |(_, content)| &content["schema"])
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value, bool)> {
    elements(&schema["allOf"]).chain([schema]).flat_map(|part| {
        let is_required =
            |name: &String| elements(&part["required"]).any(|required| required == name);
        members(&part["properties"]).map(move |(name, json)| (name, json, is_required(name)))
    })
}

/// Returns the name of the schema that a type refers to, itself or by its parts.
fn reference(schema: &Value) -> Option<&str> {
    let own = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    let mut parts = elements(&schema["oneOf"]).chain(elements(&schema["allOf"]));
    own.or_else(|| parts.find_map(reference)).or_else(|| reference(schema.get("items")?))
}

fn type_words(schema: &Value) -> String {
    let join = |parts: &Value, separator: &str| {
        elements(parts).map(type_words).collect::<Vec<_>>().join(separator)
    };

    if schema["$ref"].is_string() {
        return reference(schema).unwrap_or_default().to_owned();
    }

    for (key, separator) in [("oneOf", " or "), ("allOf", " and ")] {
        if schema[key].is_array() {
            return join(&schema[key], separator);
        }
    }
    if let Some(items) = schema.get("items") {
        return format!("array of {}", type_words(items));
    }
    if schema["enum"].is_array() {
        return elements(&schema["enum"]).map(text).collect::<Vec<_>>().join(" | ");
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

    words
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default().trim()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
