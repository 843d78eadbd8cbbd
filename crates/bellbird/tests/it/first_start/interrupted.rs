//! First starts that are killed with `kill -9` at any moment.

use super::{FILES, key, leftovers};
use crate::support::process::{ANY_PORTS, Workdir};

/// What a first start makes, one after the other.
const STEPS: [&str; 6] = [
    "first-start",
    "master.key",
    ".bellbird.toml.new",
    "bellbird.db",
    "bellbird.db-wal",
    "bellbird.toml",
];

/// Starts, and is killed as soon as the file is there, or the last one, because a file that is
/// renamed at once may not be seen.
fn kill_at(workdir: &Workdir, step: &str) {
    let mut command = workdir.command(&format!("serve --json {ANY_PORTS}"));
    let mut child = command.spawn().unwrap();
    let files = [step, STEPS[STEPS.len() - 1]].map(|name| workdir.data_folder().join(name));
    while !files.iter().any(|file| file.exists()) && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn next_start_goes_on() {
    for step in STEPS {
        // Twice, because the second one may be killed while it goes on.
        let workdir = Workdir::new();
        kill_at(&workdir, step);
        let made = workdir.data_folder().join("master.key");
        let key_before = made.exists().then(|| key(&workdir));
        kill_at(&workdir, step);
        let service = workdir.start("serve");
        assert!(service.json()["setupUrl"].is_string(), "{step}");
        if let Some(before) = key_before {
            assert_eq!(key(&workdir), before, "{step}");
        }
        let folder = workdir.data_folder();
        assert!(leftovers(&folder).is_empty(), "{step}");
        assert!(
            FILES.iter().all(|name| folder.join(name).exists()),
            "{step}"
        );
        // It works, and seals with that key.
        workdir.json("user add --email me@example.com");
        service.end();
        workdir.start("serve").end();
    }
}
