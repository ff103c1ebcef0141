//! The lab: throw-away items, and an order that is not placed.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::orders::{Wanted, with_trace};
use crate::shop::catalog::{self, Item, ItemKind};
use crate::shop::orders::{self, Order};
use crate::shop::{Error, Sku};
use crate::web::auth::{Admin, SignedIn};
use crate::web::body::Json;
use crate::web::conditions::{Usual, Wished, idempotency_key};
use crate::web::openapi::Refusals;
use crate::web::problems::{Kind, Problem};
use crate::web::{Site, answer};

/// What a throw-away item costs when nobody says.
const USUAL_PRICE_CENTS: i64 = 100;

/// A throw-away item.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLabItem {
    /// How many there are: 0 to 10⁹.
    pub stock: i64,
    /// What one costs, in cents; 100 if not said.
    #[serde(default)]
    pub price_cents: Option<i64>,
    /// How many of it one customer may have, 1 to 1,000; no limit if not said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<i64>,
}

/// Makes a throw-away item, hidden from the shop, on which any strategy may be tried (admin).
#[utoipa::path(post, path = "/api/lab/items", tag = "lab", security(("session" = [])),
    request_body = NewLabItem, responses((status = 201, body = Item), Refusals))]
pub async fn create_item(
    site: web::Data<Site>,
    _: Admin,
    Usual(conditions): Usual,
    new: Json<NewLabItem>,
) -> Result<HttpResponse, Problem> {
    let new = new.read()?;
    lab_is_on(&site)?;
    let sku = Sku::try_from(format!("lab-{}", Uuid::now_v7().simple()))
        .map_err(|error| Error::Bug(error.to_owned()))?;
    let item = Item {
        name: "A throw-away item of the lab".to_owned(),
        price_cents: new.price_cents.unwrap_or(USUAL_PRICE_CENTS),
        stock: new.stock,
        limit_per_user: new.limit_per_user,
        sku,
    };
    answer(catalog::create(&site.shop, item, ItemKind::Lab, conditions.request_id).await?)
}

/// Takes, checks and answers an order without placing it: what the path costs without the work.
#[utoipa::path(post, path = "/api/lab/noop", tag = "lab", security(("session" = [])),
    params(("Idempotency-Key" = Option<String>, Header), ("token" = Option<String>, Query)),
    request_body = Wanted, responses((status = 201, body = Order), Refusals))]
pub async fn noop(
    site: web::Data<Site>,
    request: HttpRequest,
    who: SignedIn,
    conditions: Wished,
    wanted: Json<Wanted>,
) -> Result<HttpResponse, Problem> {
    let conditions = conditions.read()?;
    let wanted = wanted.read()?;
    lab_is_on(&site)?;
    let key = idempotency_key(&request)?;
    let checked = orders::check(who.caller.id, key, &wanted.lines)?;
    answer(with_trace(checked, &conditions.probe)?)
}

/// A request that is held at a point.
#[derive(Debug, Serialize, ToSchema)]
pub struct HeldRequest {
    /// Which; its `X-Request-Id`.
    pub request_id: Uuid,
    /// The point's name.
    pub point: &'static str,
    /// Since when, on the machine's monotonic clock, in microseconds.
    pub since_us: u64,
}

/// Who is held at this replica (`Holdfast-Pause`), and where (admin).
#[utoipa::path(get, path = "/api/lab/holds", tag = "lab", security(("session" = [])),
    responses((status = 200, body = [HeldRequest]), Refusals))]
pub async fn holds(site: web::Data<Site>, _: Admin) -> Result<HttpResponse, Problem> {
    lab_is_on(&site)?;
    let held = site.board.held().into_iter().map(|held| HeldRequest {
        request_id: held.request_id,
        point: held.point.name(),
        since_us: held.since_us,
    });
    Ok(HttpResponse::Ok().json(held.collect::<Vec<_>>()))
}

/// Lets a held request go on (admin).
#[utoipa::path(post, path = "/api/lab/holds/{id}", tag = "lab", security(("session" = [])),
    params(("id" = String, Path)), responses((status = 204), Refusals))]
pub async fn let_go(
    site: web::Data<Site>,
    _: Admin,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    lab_is_on(&site)?;
    match Uuid::parse_str(&id) {
        Ok(request) if site.board.let_go(request, None) => Ok(HttpResponse::NoContent().finish()),
        _ => Err(Problem::new(Kind::NotFound, format!("no request {id} is held here"))),
    }
}

pub(in crate::web) fn lab_is_on(site: &Site) -> Result<(), Problem> {
    if site.lab { Ok(()) } else { Err(Problem::new(Kind::Forbidden, "the lab is off")) }
}
