//! The engine's queues, without a server.

mod queue;
