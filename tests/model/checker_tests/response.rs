//! Responses of the API, parsed for what they promise.

use holdfast::shop::UserId;
use uuid::Uuid;

use crate::checker::{ObservedOperation, ObservedOutcome};

fn parse(status: u16, body: &str) -> ObservedOutcome {
    let user = UserId(Uuid::nil());
    let place = ObservedOperation::Place(vec![]);
    ObservedOutcome::parse(user, &place, status, false, body.as_bytes())
}

#[test]
fn response_is_parsed_for_what_it_promises() {
    let sold_out = r#"{"type":"/problems/sold-out","sku":"padlock","requested":2,"available":1}"#;
    let insufficient =
        ObservedOutcome::Insufficient { key: "padlock".to_owned(), requested: 2, available: 1 };
    assert_eq!(parse(409, sold_out), insufficient);
    for name in ["lock-busy", "lock-timeout", "lock-lost", "overloaded", "unavailable"] {
        let body = format!(r#"{{"type":"/problems/{name}"}}"#);
        assert_eq!(parse(503, &body), ObservedOutcome::Rejected, "{name}");
    }
    let unknown = r#"{"type":"/problems/unavailable","outcome":"unknown"}"#;
    assert_eq!(parse(503, unknown), ObservedOutcome::Unknown);
    assert_eq!(parse(500, r#"{"type":"/problems/internal-error"}"#), ObservedOutcome::Unknown);
    assert_eq!(parse(502, "<html>"), ObservedOutcome::Unknown);
    assert_eq!(parse(201, "cut o"), ObservedOutcome::Unknown);
}
