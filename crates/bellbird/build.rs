//! Tells the program which commit it is built from.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BELLBIRD_COMMIT");
    match commit(
        &variable("BELLBIRD_COMMIT"),
        &variable("PROFILE"),
        Path::new("../.."),
    ) {
        Ok(Commit { id, changes_with }) => {
            println!("cargo::rustc-env=BELLBIRD_COMMIT={id}");
            if let Some(file) = changes_with {
                println!("cargo::rerun-if-changed={file}");
            }
        }
        Err(error) => println!("cargo::error={error}"),
    }
    if links_with_lld() {
        // The program is a megabyte smaller, in its file and in memory.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// The only target for which Rust brings a linker that knows both options.
fn links_with_lld() -> bool {
    variable("TARGET") == "x86_64-unknown-linux-gnu"
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo and packagers pass values to a build script in the environment"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// 12 hexadecimal digits, or `unknown`.
    pub(crate) id: String,
    /// The file that changes with the commit.
    pub(crate) changes_with: Option<String>,
}

/// The commit that the builder has named, or else the one that is checked out in the folder
/// `source`. It is unknown for sources without their repository, such as those of a container
/// image, and for debug builds, which would be compiled again after each commit.
pub(crate) fn commit(named: &str, profile: &str, source: &Path) -> Result<Commit, String> {
    if !named.is_empty() {
        return match named.get(..12) {
            Some(id)
                if named
                    .bytes()
                    .all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) =>
            {
                Ok(Commit {
                    id: id.to_owned(),
                    changes_with: None,
                })
            }
            _ => Err(
                "BELLBIRD_COMMIT is not a commit: set it to the output of `git rev-parse HEAD`"
                    .to_owned(),
            ),
        };
    }
    // The sources may lie in a folder of another repository.
    let checked_out = (profile == "release" && source.join(".git").exists())
        .then(|| checked_out(source))
        .flatten();
    Ok(checked_out.unwrap_or_else(|| Commit {
        id: "unknown".to_owned(),
        changes_with: None,
    }))
}

fn checked_out(source: &Path) -> Option<Commit> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(source)
            .output()
            .ok()?;
        let text = output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout))?
            .ok()?;
        Some(text.trim().to_owned())
    };
    // Each commit and checkout adds a line to this file, which a further work tree has for itself.
    let log = source.join(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    Some(Commit {
        id: git(&["rev-parse", "--short=12", "HEAD"])?,
        changes_with: log.to_str().map(str::to_owned),
    })
}
