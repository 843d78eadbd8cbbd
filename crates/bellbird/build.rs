//! Tells the program which commit it is built from.

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BELLBIRD_COMMIT={commit}");
    if links_with_lld() {
        // The program is a megabyte smaller, in its file and in memory.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// The only target for which Rust brings a linker that knows both options.
#[expect(clippy::disallowed_methods, reason = "cargo tells a build script the target in the environment")]
fn links_with_lld() -> bool {
    std::env::var("TARGET").as_deref() == Ok("x86_64-unknown-linux-gnu")
}

/// `None` for sources without their repository, such as those of a container image, and for debug builds, which would
/// be compiled again after each commit.
#[expect(clippy::disallowed_methods, reason = "cargo tells a build script the profile in the environment")]
fn commit() -> Option<String> {
    println!("cargo::rerun-if-changed=build.rs");
    // The sources may lie in a folder of another repository.
    if std::env::var("PROFILE").as_deref() != Ok("release") || !Path::new("../../.git").exists() {
        return None;
    }
    // Each commit and checkout adds a line to this file.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
