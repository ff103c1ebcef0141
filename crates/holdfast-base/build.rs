//! Passes the compiler's optimization level to the crate.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=HOLDFAST_OPT_LEVEL={level}");
}
