//! Turns the messages of parsers into sentences for the author of a request.

/// Explains why a value could not be parsed, without the parser's own words. A message that is
/// already a sentence of the shop is returned as it is.
pub fn explain(message: &str) -> String {
    // serde_json appends the position, which the name of the field makes needless.
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    if let Some(rest) = message.strip_prefix("invalid type: ") {
        return found_and_expected(rest).map_or_else(other_type, |(found, expected)| {
            format!("{expected} is expected, not {found}")
        });
    }
    if let Some(rest) = message.strip_prefix("invalid value: ") {
        return match found_and_expected(rest) {
            Some((_, expected)) if expected != WHOLE_NUMBER => format!("{expected} is expected"),
            Some((found, _)) => format!("{found} is out of range"),
            None => other_type(),
        };
    }
    if message.starts_with("invalid length ") {
        return "an object is expected, not an array".to_owned();
    }
    if message.starts_with("unknown field ") {
        return "there is no such field".to_owned();
    }
    if let Some(name) = message.strip_prefix("duplicate field ") {
        return format!("{} is given twice", name.replace('`', ""));
    }
    if let Some((_, names)) = message.split_once("unknown variant ") {
        let names = names.split_once(", expected ").map_or("", |(_, names)| names);
        let names = names.replace("one of ", "").replace(" or ", ", ").replace('`', "");
        return format!("it must be one of {names}");
    }
    if message.starts_with("UUID parsing failed") {
        return "a UUID is expected".to_owned();
    }
    if message.contains("digit found in string") || message.contains("integer from empty string") {
        return format!("{WHOLE_NUMBER} is expected");
    }
    if message.starts_with("number too ") {
        return "the number is out of range".to_owned();
    }
    message.to_owned()
}

const WHOLE_NUMBER: &str = "a whole number";

fn found_and_expected(rest: &str) -> Option<(String, &str)> {
    let (found, expected) = rest.split_once(", expected ")?;
    Some((found_value(found), expected_value(expected)))
}

fn other_type() -> String {
    "a value of another type is expected".to_owned()
}

/// Names what was found: "integer `1`", "string \"x\"", "map".
fn found_value(found: &str) -> String {
    let value = found.split('`').nth(1).unwrap_or_default();
    match found.split(' ').next().unwrap_or_default() {
        "integer" | "floating" => format!("the number {value}"),
        "string" => "a text".to_owned(),
        "boolean" => value.to_owned(),
        "map" => "an object".to_owned(),
        "sequence" => "an array".to_owned(),
        "null" | "unit" | "Option" => "null".to_owned(),
        _ => "another value".to_owned(),
    }
}

/// Names what was expected: "i64", "a string", "struct OrderRequest", "a formatted UUID string".
fn expected_value(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => WHOLE_NUMBER,
        "f64" => "a number",
        "a string" | "str" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" | "an object" => "an object",
        _ if expected.starts_with("struct ") => "an object",
        _ if expected.contains("UUID") => "a UUID",
        _ if expected.contains("RFC3339") => "a time as in RFC 3339",
        _ => "another type",
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    fn explained<T: DeserializeOwned>(json: &str) -> String {
        explain(&serde_json::from_str::<T>(json).err().unwrap().to_string())
    }

    #[test]
    fn json_errors_become_sentences() {
        assert_eq!(explained::<i64>("\"1\""), "a whole number is expected, not a text");
        assert_eq!(explained::<i64>("1.5"), "a whole number is expected, not the number 1.5");
        assert_eq!(explained::<u32>("-1"), "the number -1 is out of range");
        assert_eq!(explained::<String>("7"), "a text is expected, not the number 7");
        assert_eq!(explained::<String>("null"), "a text is expected, not null");
        assert_eq!(explained::<Vec<i64>>("{}"), "an array is expected, not an object");
        assert_eq!(explained::<bool>("[]"), "true or false is expected, not an array");
        assert_eq!(explained::<Uuid>("\"x\""), "a UUID is expected");
        assert_eq!(explained::<Uuid>("true"), "a UUID is expected, not true");
        let fault = explained::<crate::lab::run::FaultKind>("\"fire\"");
        assert!(fault.starts_with("it must be one of pause-replica, kill-replica"), "{fault}");
        let order = explained::<crate::web::api::orders::OrderRequest>("{\"coupon\": 1}");
        assert_eq!(order, "there is no such field");
        let order = explained::<crate::web::api::orders::OrderRequest>("[]");
        assert_eq!(order, "an object is expected, not an array");
        // The message of `json_objects`.
        let line = explain("invalid type: sequence, expected an object");
        assert_eq!(line, "an object is expected, not an array");
        let order = explained::<crate::web::api::orders::OrderRequest>("7");
        assert_eq!(order, "an object is expected, not the number 7");
        let twice = "{\"lines\": [], \"lines\": []}";
        let order = explained::<crate::web::api::orders::OrderRequest>(twice);
        assert_eq!(order, "lines is given twice");
        let tick = explained::<crate::web::api::jobs::TickRequest>("{\"due_at\": 1}");
        assert_eq!(tick, "a time as in RFC 3339 is expected, not the number 1");
    }

    #[test]
    fn query_errors_become_sentences() {
        let number = |text: &str| explain(&text.parse::<i64>().unwrap_err().to_string());
        assert_eq!(number("x"), "a whole number is expected");
        assert_eq!(number(""), "a whole number is expected");
        assert_eq!(number("9223372036854775808"), "the number is out of range");
        let uuid = "x".parse::<Uuid>().unwrap_err();
        assert_eq!(explain(&format!("UUID parsing failed: {uuid}")), "a UUID is expected");
        let date = serde_json::from_str::<OffsetDateTime>("7").unwrap_err();
        assert!(!explain(&date.to_string()).contains("line"), "{date}");
        assert_eq!(explain("a sku is 1 to 64 of a-z"), "a sku is 1 to 64 of a-z");
    }
}
