//! Free ports for programs that take one as an argument.

/// The first of `count` consecutive ports that no other test is given, nor any program under test.
pub fn free_ports(count: u16) -> u16 {
    holdfast_services::free_ports(count).unwrap()
}
