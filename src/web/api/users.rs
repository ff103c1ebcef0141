//! Users and sessions.

use actix_web::{HttpRequest, HttpResponse, web};

use crate::shop::users::{self, CreatedUser, Credentials, SessionToken};
use crate::web::auth::SignedIn;
use crate::web::body::Json;
use crate::web::openapi::Refusals;
use crate::web::problems::{Kind, Problem};
use crate::web::{HttpResult, Site, created};

/// Creates a user with an empty account.
#[utoipa::path(post, path = "/api/users", tag = "people", request_body = Credentials,
    responses((status = 201, body = CreatedUser), Refusals))]
pub async fn create(
    site: web::Data<Site>,
    request: HttpRequest,
    credentials: Json<Credentials>,
) -> HttpResult {
    let credentials = credentials.read()?;
    site.door.knock(&request, None).await?;
    Ok(created(users::create(&site.shop.pool, credentials, false).await?))
}

/// Signs in and returns a session token.
#[utoipa::path(post, path = "/api/sessions", tag = "people", request_body = Credentials,
    responses((status = 201, body = SessionToken), Refusals))]
pub async fn sign_in(
    site: web::Data<Site>,
    request: HttpRequest,
    credentials: Json<Credentials>,
) -> HttpResult {
    let credentials = credentials.read()?;
    let name = credentials.user.clone();
    site.door.knock(&request, Some(&name)).await?;
    match users::sign_in(&site.shop, credentials).await? {
        Some(session) => {
            site.door.welcome(&request, &name).await;
            Ok(HttpResponse::Created().json(session))
        }
        None => Err(Problem::new(Kind::Unauthenticated, "name or password is wrong")),
    }
}

/// Signs out: ends the session of this request.
#[utoipa::path(delete, path = "/api/sessions", tag = "people", security(("session" = [])),
    responses((status = 204), Refusals))]
pub async fn sign_out(site: web::Data<Site>, who: SignedIn) -> HttpResult {
    users::sign_out(&site.shop, &who.token).await?;
    site.sessions.forget(&who.token).await;
    Ok(HttpResponse::NoContent().finish())
}
