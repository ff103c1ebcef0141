//! Queries for the API and the pages.

pub mod admin_log;
pub mod catalog;
pub mod ledger;
pub mod next_return;
pub mod order_search;
pub mod orders;
mod text_search;
pub mod users;
