//! How the build script finds the commit that `--version` shows.

use std::path::Path;
use std::process::Command;

#[path = "../../../build.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "cargo calls its main function, and reads what that prints"
)]
mod script;

use script::{Commit, commit};

/// Runs git without the settings of this machine.
fn git(folder: &Path, line: &str) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    git.args(["-c", "user.name=A", "-c", "user.email=a@example.com"]);
    let output = git.args(line.split(' ')).output().unwrap();
    assert!(
        output.status.success(),
        "git {line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn add_commit(folder: &Path) -> String {
    git(folder, "commit --quiet --allow-empty --message=x");
    git(folder, "rev-parse HEAD")[..12].to_owned()
}

fn unknown() -> Result<Commit, String> {
    Ok(Commit {
        id: "unknown".to_owned(),
        changes_with: None,
    })
}

#[test]
fn release_knows_the_commit_of_its_work_tree() {
    let place = tempfile::tempdir().unwrap();
    let (source, further) = (place.path().join("source"), place.path().join("further"));
    git(place.path(), "init --quiet source");
    assert_eq!(
        commit("", "release", &source),
        unknown(),
        "a repository without a commit"
    );
    let first = add_commit(&source);
    git(&source, "worktree add --quiet ../further");
    let second = add_commit(&further);
    assert_ne!(first, second);
    for (folder, expected) in [(&source, &first), (&further, &second)] {
        let found = commit("", "release", folder).unwrap();
        assert_eq!(&found.id, expected);
        let watched = found.changes_with.unwrap();
        let before = std::fs::read(&watched).unwrap();
        let next = add_commit(folder);
        assert_eq!(commit("", "release", folder).unwrap().id, next);
        assert_ne!(
            std::fs::read(&watched).unwrap(),
            before,
            "cargo would not run the script again"
        );
        assert_eq!(commit("", "debug", folder), unknown());
    }
    let vendored = source.join("vendored");
    std::fs::create_dir(&vendored).unwrap();
    assert_eq!(
        commit("", "release", &vendored),
        unknown(),
        "the commit of another project"
    );
}

#[test]
fn named_commit_wins_in_every_profile() {
    let folder = tempfile::tempdir().unwrap();
    let named = "b76420e12345b76420e12345b76420e12345b764";
    let expected = Ok(Commit {
        id: "b76420e12345".to_owned(),
        changes_with: None,
    });
    for profile in ["debug", "release"] {
        assert_eq!(commit(named, profile, folder.path()), expected);
        assert_eq!(commit("", profile, folder.path()), unknown());
    }
    for wrong in [
        "main",
        "b76420e",
        "B76420E12345",
        "b76420e12345\n",
        "b76420e1234é",
        "v0.1.0-14-gb76420e",
    ] {
        assert!(commit(wrong, "release", folder.path()).is_err(), "{wrong}");
    }
}
