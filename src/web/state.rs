//! The state that all handlers of one replica share.

use actix_web::{HttpRequest, web};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use super::demo_user::DemoUser;
use super::last_catalog::LastCatalog;
use super::middleware::public_hosts::PublicHosts;
use super::middleware::rate_limits::RateLimits;
use super::middleware::sessions::SessionCache;
use super::problems::{Problem, ProblemType};
use super::readiness::Readiness;
use super::run_frames::RunFrames;
use holdfast_base::messages::message;
use holdfast_lab::race::runner::RaceRunner;
use holdfast_lab::scheduler_game::Games;
use holdfast_shop::Shop;
use holdfast_shop::budget::Budget;
use holdfast_shop::jobs::{self, order_expiry::OrderExpiry};
use holdfast_shop::probe::PauseBoard;

/// Upper bound of a replica's open event streams; those of one run share a poll of Postgres.
pub const MAX_EVENT_STREAMS: usize = 200;

#[derive(Debug)]
pub struct AppState {
    pub shop: Shop,
    pub order_expiry: OrderExpiry,
    pub replica: String,
    pub lab: bool,
    pub public_lab: bool,
    /// True if a class is taught: its students join without a password.
    pub class: bool,
    /// The URL of the class for its students' devices, without a path.
    pub class_url: Option<String>,
    /// True if visitors on this machine may run lessons: `up` knows that no proxy is in front.
    pub local_visitors: bool,
    /// A permit for each stream of events, of which one address has three quarters.
    pub event_streams: Budget<String>,
    pub run_frames: RunFrames,
    pub board: PauseBoard,
    pub games: Games,
    pub races: RaceRunner,
    pub demo_user: DemoUser,
    pub last_catalog: LastCatalog,
    pub jobs: jobs::Scheduler,
    /// Cancelled when the replica shuts down; event streams end then.
    pub stop: CancellationToken,
    pub sessions: SessionCache,
    pub min_password_length: u16,
    pub secure_cookies: bool,
    pub rate_limits: RateLimits,
    pub public_hosts: PublicHosts,
    pub readiness: Readiness,
    pub metrics: PrometheusHandle,
}

pub type State = web::Data<AppState>;

impl AppState {
    pub fn require_lab(&self) -> Result<(), Problem> {
        if self.lab {
            return Ok(());
        }
        Err(Problem::new(ProblemType::Forbidden, message!("problem-lab-off")))
    }

    /// Requires that a class is taught; otherwise there is no such page.
    pub fn require_class(&self, request: &HttpRequest) -> Result<(), Problem> {
        if self.class { Ok(()) } else { Err(Problem::no_page(request.path())) }
    }

    /// Requires that any visitor may create a user: in a class, only its students join.
    pub fn require_open_sign_up(&self) -> Result<(), Problem> {
        if !self.class {
            return Ok(());
        }
        Err(Problem::new(ProblemType::Forbidden, message!("class-no-sign-up")))
    }
}

pub fn app_state(request: &HttpRequest) -> Result<&State, Problem> {
    request
        .app_data::<State>()
        .ok_or_else(|| Problem::new(ProblemType::InternalError, message!("problem-not-set-up")))
}
