//! Parses JSON, and accepts only an object where the type is a struct.
//!
//! serde also reads a struct from an array, as its fields in order: `[[["tea",1]]]` would place an
//! order. [`StrictValue`] refuses that at any depth.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// A value whose structs must be objects.
pub(super) struct StrictValue(pub Value);

impl<'de> IntoDeserializer<'de, Error> for StrictValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for StrictValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(StrictValue));
                let value = visitor.visit_seq(&mut items)?;
                items.end().map(|()| value)
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, StrictValue(value)));
                let mut fields = MapDeserializer::new(fields);
                let value = visitor.visit_map(&mut fields)?;
                fields.end().map(|()| value)
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::lab::run::RunRequest;
    use crate::shop::model::RequestedLine;

    #[derive(Debug, Deserialize)]
    struct Order {
        lines: Vec<RequestedLine>,
    }

    fn parse<'de, T: Deserialize<'de>>(value: Value) -> Result<T, String> {
        serde_path_to_error::deserialize(StrictValue(value)).map_err(|error| error.to_string())
    }

    #[test]
    fn array_is_not_an_object() {
        let line = json!({ "sku": "tea", "quantity": 1 });
        let order = parse::<Order>(json!({ "lines": [line] })).expect("an order");
        assert_eq!(order.lines.len(), 1);
        for (array, start) in [
            (json!([[["tea", 1]]]), "invalid type"),
            (json!([[line]]), "invalid type"),
            (json!({ "lines": [line, ["tea", 1]] }), "lines[1]: invalid type"),
        ] {
            let error = parse::<Order>(array).expect_err("an array");
            assert!(error.starts_with(start) && error.contains("an object"), "{error}");
        }
    }

    #[test]
    fn options_enums_and_lists_are_parsed() {
        let request = json!({ "strategies": ["none"], "journey": "pay", "stock": 5, "seed": null });
        let parsed = parse::<RunRequest>(request.clone()).expect("a request");
        assert_eq!(parsed, serde_json::from_value(request).expect("the same"));
        let fault = json!({ "fault": ["kill-one", 1, 1] });
        assert!(parse::<RunRequest>(fault).expect_err("an array").starts_with("fault"));
    }
}
