//! Builds the agent's image (bin/agent, its own workspace: panic=abort, no std) into OUT_DIR.
//!
//! Cargo's artifact dependencies could do this, but are not stable.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    tell_build();
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
    let mut build = Command::new(cargo);
    // The outer build's flags and profiles are for the command: the image is always the same.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            build.env_remove(name);
        }
    }
    let status = build
        .current_dir(&agent)
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(out.join("agent"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the agent image does not build");
    let image = out.join("agent/x86_64-unknown-linux-gnu/release/libsptrace_agent_image.so");
    println!("cargo::rustc-env=SPTRACE_AGENT_IMAGE={}", image.display());
}

/// For `--version`. Who packages says which commit it is: a build asks nobody, so that two builds
/// of the same files are the same.
fn tell_build() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo::rerun-if-env-changed=SPTRACE_BUILD");
    let build = match variable("SPTRACE_BUILD") {
        empty if empty.is_empty() => "built from a source tree".to_owned(),
        build => build,
    };
    let compiler = Command::new(variable("RUSTC")).arg("--version").output();
    let compiler = compiler.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let features: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .filter(|name| name != "default")
        .collect();
    let features = match features.is_empty() {
        true => "none".to_owned(),
        false => features.join(" "),
    };
    println!("cargo::rustc-env=SPTRACE_BUILD={build}");
    println!(
        "cargo::rustc-env=SPTRACE_COMPILER={}",
        compiler.unwrap_or_default()
    );
    println!("cargo::rustc-env=SPTRACE_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=SPTRACE_FEATURES={features}");
}
