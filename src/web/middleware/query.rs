//! Parses the query of an address; errors become problems.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::future::{Ready, ready};

use crate::web::Problem;

/// Upper bound of `limit` in a list request.
pub const MAX_LIST_LENGTH: i64 = 1_000;
/// Default of `limit` in a list request.
const DEFAULT_LIST_LENGTH: i64 = 100;

/// The parsed query. Like a body, an invalid one is reported when the handler calls
/// [`Query::read`].
#[derive(Debug)]
pub struct Query<T>(Result<T, Problem>);

impl<T> Query<T> {
    /// Returns the value; `invalid-request` names the field that could not be parsed.
    pub fn read(self) -> Result<T, Problem> {
        self.0
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(parse(request.query_string()))))
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let parsed = serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs));
    parsed.map_err(|error| match error.path().to_string().as_str() {
        "." => Problem::field("query", error.inner().to_string()),
        field => Problem::field(field, error.inner().to_string()),
    })
}

/// The query `?after=&limit=` of a list.
#[derive(Debug, Deserialize)]
pub struct ListQuery<After> {
    /// Cursor: the list continues after this entry.
    pub after: Option<After>,
    limit: Option<i64>,
}

impl<After> ListQuery<After> {
    /// Returns the maximum length of the list: 1 to 1,000, by default 100.
    pub fn limit(&self) -> Result<i64, Problem> {
        match self.limit {
            None => Ok(DEFAULT_LIST_LENGTH),
            Some(limit) if (1..=MAX_LIST_LENGTH).contains(&limit) => Ok(limit),
            Some(_) => Err(Problem::field("limit", format!("1 to {MAX_LIST_LENGTH}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_query_names_its_field() {
        for (query, detail) in [
            ("limit=x", "limit: invalid digit found in string"),
            ("after=&limit=1", "after: cannot parse integer from empty string"),
            ("limit=1&limit=2", "query: duplicate field `limit`"),
        ] {
            let problem = parse::<ListQuery<i64>>(query).unwrap_err();
            assert_eq!(problem.detail(), detail, "{query}");
        }
        assert_eq!(parse::<ListQuery<i64>>("after=7&color=red").unwrap().after, Some(7));
    }
}
