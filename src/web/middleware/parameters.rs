//! Parameters that several operations of the OpenAPI description share.

use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, Type};

use crate::lab::headers::{LAB_HEADERS, LabHeader};

/// The parameters of a list.
#[derive(Debug)]
pub struct ListParameters;

/// The idempotency key of a command.
#[derive(Debug)]
pub struct KeyParameters;

/// The lab's headers.
#[derive(Debug)]
pub struct LabParameters;

impl IntoParams for ListParameters {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let after = "go on behind this entry: the sku, id or seq of the last one";
        vec![
            parameter("after", ParameterIn::Query, Type::String, after),
            parameter("limit", ParameterIn::Query, Type::Integer, "1 to 1,000; 100 if absent"),
        ]
    }
}

impl IntoParams for KeyParameters {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let token = "the same, for tools that can't vary a header";
        let (header, key) = (ParameterIn::Header, "16 to 255 characters");
        vec![
            parameter("Idempotency-Key", header, Type::String, key),
            parameter("token", ParameterIn::Query, Type::String, token),
        ]
    }
}

impl IntoParams for LabParameters {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let of_header = |header: &LabHeader| {
            let meaning = format!("{} ({})", header.meaning, header.values);
            parameter(header.name, ParameterIn::Header, Type::String, &meaning)
        };
        LAB_HEADERS.iter().map(of_header).collect()
    }
}

fn parameter(name: &str, place: ParameterIn, kind: Type, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .description(Some(description))
        .schema(Some(Object::with_type(kind)))
        .build()
}
