//! Signing up.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::frame::Frame;
use super::sign_in::{Entrance, Next, admit};
use super::words::full_sentence;
use super::{door, html, see_other};
use crate::shop::users::{self, Credentials};
use crate::shop::{Failure, FieldName, Rejection};
use crate::web::auth::look;
use crate::web::{HttpResult, Site};

#[derive(Debug, Template)]
#[template(path = "sign_up.html")]
struct SignUpPage {
    frame: Frame,
    next: String,
    user: String,
    wrong: Option<(FieldName, String)>,
}

impl SignUpPage {
    fn wrong_with(&self, field: &str) -> Option<&str> {
        self.wrong.as_ref().filter(|(name, _)| *name == field).map(|(_, why)| why.as_str())
    }
}

/// Shows the page; redirects a signed-in user to the shop.
pub async fn show(request: HttpRequest, query: web::Query<Next>) -> HttpResult {
    if look(&request).await.is_ok_and(|signed_in| signed_in.is_some()) {
        return Ok(see_other("/"));
    }
    page(&request, StatusCode::OK, &query.next, String::new(), None).await
}

/// Creates the user and signs in.
pub async fn join(
    site: web::Data<Site>,
    request: HttpRequest,
    form: web::Form<Entrance>,
) -> HttpResult {
    door::from_this_site(&request)?;
    let Entrance { user, password, next } = form.into_inner();
    let user = user.trim().to_owned();
    site.door.knock(&request, None).await?;
    let credentials = Credentials { user: user.clone(), password: password.clone() };
    let (status, wrong) = match users::create(&site.shop.pool, credentials, false).await {
        Err(Failure::Rejected(Rejection::Invalid(field, why))) => {
            (StatusCode::UNPROCESSABLE_ENTITY, (field, full_sentence(&why)))
        }
        Err(Failure::Rejected(Rejection::Exists(_))) => (
            StatusCode::CONFLICT,
            ("user".into(), "Somebody has that name; choose another.".to_owned()),
        ),
        Err(other) => return Err(other.into()),
        Ok(_) => {
            site.door.welcome(&request, &user).await;
            let admitted = admit(&site.shop, user, password, &next).await?;
            return Ok(admitted.unwrap_or_else(|| see_other("/sign-in")));
        }
    };
    page(&request, status, &next, user, Some(wrong)).await
}

async fn page(
    request: &HttpRequest,
    status: StatusCode,
    next: &str,
    user: String,
    wrong: Option<(FieldName, String)>,
) -> HttpResult {
    let next = door::local_place(next).to_owned();
    let frame = Frame::of(request).await?;
    html(status, &SignUpPage { frame, next, user, wrong })
}
