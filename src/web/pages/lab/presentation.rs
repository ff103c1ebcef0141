//! Pages for a projector: `?present` in the address, large text, nothing but the content.

use actix_web::HttpRequest;

/// Whether a page is shown to a class, and the query that keeps it so in links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presentation(bool);

impl Presentation {
    pub fn of(request: &HttpRequest) -> Self {
        let mut names = form_urlencoded::parse(request.query_string().as_bytes());
        Self(names.any(|(name, _)| name == "present"))
    }

    pub fn is_on(self) -> bool {
        self.0
    }

    /// Returns the query for the addresses of links and forms.
    pub fn query(self) -> &'static str {
        if self.0 { "?present" } else { "" }
    }
}
