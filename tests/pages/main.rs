//! The pages: in a real Chromium, and as a browser without one would ask for them.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod jobs;
mod lab;
mod limit;
mod once;
mod purchase;
mod reading;
mod refusals;
mod swimlane;
mod visitor;
