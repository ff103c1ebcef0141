//! Parameters that several operations of the OpenAPI description share.

use std::marker::PhantomData;

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, Required};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use uuid::Uuid;

use super::body::MAX_LIST_LENGTH;

pub const KEY_HEADER: &str = "Idempotency-Key";

#[derive(Debug)]
pub struct ListParameters<After = UuidCursor>(PhantomData<After>);

#[derive(Debug, ToSchema)]
pub struct UuidCursor(#[expect(dead_code, reason = "only its schema is used")] Uuid);

/// The idempotency key of a command that requires it.
#[derive(Debug)]
pub struct KeyParameters;

/// The idempotency key of a command that is safe to send twice without it.
#[derive(Debug)]
pub struct OptionalKeyParameters;

impl<After: PartialSchema> IntoParams for ListParameters<After> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let meaning = "the list continues after this entry: the `next` of the page before";
        let limit = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(isize::try_from(MAX_LIST_LENGTH).unwrap_or(isize::MAX)));
        let length = "maximum number of entries; 100 if absent";
        vec![
            parameter("after", ParameterIn::Query, After::schema(), meaning).build(),
            parameter("limit", ParameterIn::Query, limit.build().into(), length).build(),
        ]
    }
}

impl IntoParams for KeyParameters {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let meaning = "16 to 255 visible ASCII characters, new for each command and the same for \
            each retry of it. A tool that can't vary a header may send `?token=` in its place.";
        vec![key_parameter(meaning).required(Required::True).build()]
    }
}

impl IntoParams for OptionalKeyParameters {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let meaning = "16 to 255 visible ASCII characters. With it, a retry returns the first \
            response again; without it, `order-state` or `exists`.";
        vec![key_parameter(meaning).build()]
    }
}

/// Bare or quoted, without quotes and backslashes inside.
fn key_parameter(meaning: &str) -> ParameterBuilder {
    let pattern = r#"^([!#-\[\]-~]{16,255}|"[!#-\[\]-~]{16,255}")$"#;
    let key = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build();
    parameter(KEY_HEADER, ParameterIn::Header, key.into(), meaning)
}

fn parameter(
    name: &str,
    place: ParameterIn,
    schema: RefOr<Schema>,
    description: &str,
) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
}
