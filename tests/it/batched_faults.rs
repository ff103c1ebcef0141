//! `batched` while something breaks.
