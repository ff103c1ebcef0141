//! Queries for the API and the pages.

pub mod admin_log;
pub mod catalog;
pub mod ledger;
pub mod orders;
