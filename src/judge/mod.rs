//! Judges any lock behind an adapter: does it keep two changes apart under load and faults?

pub mod report;
