//! Who a visitor of the lab is: a signed-in user, or a browser with a cookie, so that the lab works
//! without signing in and, but for the scheduler, without JavaScript.

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use uuid::Uuid;

use crate::web::Problem;
use crate::web::middleware::lab_access::{Action, RunAccess, run_access};
use crate::web::middleware::{VISITOR_COOKIE, find_caller};
use holdfast_lab::progress::Visitor;

/// Returns the signed-in user, or the browser that may run lessons without a session, if it has a
/// cookie.
pub(crate) async fn visitor(request: &HttpRequest) -> Result<Option<Visitor>, Problem> {
    if let Some(caller) = find_caller(request).await.ok().flatten() {
        return Ok(Some(Visitor { id: caller.id.0, user: Some(caller.id) }));
    }
    // A reader from elsewhere must not fill the table with made-up cookies.
    if run_access(request, Action::Lesson).await? != RunAccess::Granted {
        return Ok(None);
    }
    let cookie = VISITOR_COOKIE.read(request);
    let id = cookie.and_then(|id| Uuid::parse_str(&id).ok()).filter(is_of_browser);
    Ok(id.map(|id| Visitor { id, user: None }))
}

/// Returns the visitor who sends a form; a browser without a cookie gets one, which the response
/// must set.
pub(crate) async fn visitor_of_form(
    request: &HttpRequest,
) -> Result<(Visitor, Option<Cookie<'static>>), Problem> {
    if let Some(known) = visitor(request).await? {
        return Ok((known, None));
    }
    let id = Uuid::new_v4();
    let cookie = VISITOR_COOKIE.build(request, id.to_string());
    Ok((Visitor { id, user: None }, Some(cookie)))
}

/// The ids of users are of another version, so a cookie cannot name one.
fn is_of_browser(id: &Uuid) -> bool {
    id.get_version_num() == 4
}
