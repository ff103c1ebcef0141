//! The locks of the shop against Redis servers of their own: the teaching locks, the queue, and
//! what a cancelled future leaves behind, for every lock.

mod cancelled;
mod queue_lock;
