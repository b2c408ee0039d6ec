//! Asks the linker to keep one of functions that are the same, byte for byte, if it can: a thirtieth of the program.

use std::env;
use std::process::{Command, Stdio};

const ARGUMENT: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if links().unwrap_or(false) {
        println!("cargo::rustc-link-arg-bins={ARGUMENT}");
    }
}

/// Whether a small program is linked with it. The `lld` that comes with Rust takes it, and GNU's linker does not.
fn links() -> Option<bool> {
    let out = env::var_os("OUT_DIR")?;
    let source = std::path::Path::new(&out).join("probe.rs");
    std::fs::write(&source, "fn main() {}\n").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc
        .arg("--target")
        .arg(env::var_os("TARGET")?)
        .arg("--out-dir")
        .arg(&out)
        .arg("-C")
        .arg(format!("link-arg={ARGUMENT}"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = std::ffi::OsString::from("linker=");
        argument.push(linker);
        rustc.arg("-C").arg(argument);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    let done = rustc.arg(source).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    Some(done.success())
}
