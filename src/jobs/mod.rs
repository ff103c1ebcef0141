//! What the shop does when nobody is asking.
//!
//! Every replica does all of it; a lock, a row or a status sees to it that each thing is done once.

pub mod keys;
pub mod unpaid;
