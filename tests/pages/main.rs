//! The pages, in a real Chromium and as plain HTTP responses.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod account_basket;
mod admin_csv;
mod admin_items;
mod admin_users;
mod axe;
mod axe_core;
mod browser;
mod chinese;
mod class;
mod content;
mod csrf;
mod customer_limit;
mod duplicate_submits;
mod follow;
mod form_focus;
mod glossary;
mod jobs;
mod join;
mod judged;
mod lab;
mod lab_access;
mod lab_run;
mod left_students;
mod paused;
mod price;
mod print;
mod prove;
mod purchase;
mod race;
mod rejections;
mod returns;
mod saved_run;
mod scheduler_game;
mod security;
mod shopper;
mod slow_motion;
mod stability;
mod stall;
mod student_rights;
mod swimlane;
mod visitor;
mod waiting;
