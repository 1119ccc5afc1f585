//! Builds the agent's image (bin/agent, its own workspace: panic=abort, no std) into OUT_DIR.
//!
//! Cargo's artifact dependencies could do this, but are not stable.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo"));
    let agent = here.join("../agent");
    for watched in [
        "../agent/src",
        "../agent/Cargo.toml",
        "../agent/.cargo",
        "../../lib/agent/src",
        "../../lib/wire/src",
    ] {
        println!("cargo::rerun-if-changed={}", here.join(watched).display());
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&agent)
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(out.join("agent"))
        // The outer build's flags are for the command, not for the image.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the agent image does not build");
    let image = out.join("agent/x86_64-unknown-linux-gnu/release/libsptrace_agent_image.so");
    println!("cargo::rustc-env=SPTRACE_AGENT_IMAGE={}", image.display());
}
