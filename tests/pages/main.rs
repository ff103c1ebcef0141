//! The pages: in a real Chromium, and as a browser without one would ask for them.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod content;
mod customer_limit;
mod docs;
mod duplicate_submits;
mod jobs;
mod lab;
mod purchase;
mod rejections;
mod security;
mod swimlane;
mod visitor;
