//! First starts that are killed with `kill -9` at any moment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{FILES, key, leftovers};
use crate::support::process::{ANY_PORTS, MASTER_KEY, Workdir};

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

/// What is there between two steps, some of which are too close together for a kill to hit.
#[test]
fn start_goes_on_after_each_step() {
    let steps = [
        (".first-start.new", "Bell"),
        ("first-start", ""),
        (".master.key.new", "main:"),
        ("master.key", MASTER_KEY),
        (".bellbird.toml.new", "[data"),
        ("bellbird.db", ""),
    ];
    for count in 1..=steps.len() {
        let workdir = Workdir::new();
        let folder = workdir.data_folder();
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        for (name, text) in &steps[..count] {
            // A draft was renamed.
            let _ = fs::remove_file(folder.join(format!(".{name}.new")));
            fs::write(folder.join(name), text).unwrap();
        }
        workdir.json("init --email me@example.com");
        assert!(leftovers(&folder).is_empty(), "{:?}", leftovers(&folder));
        let is_kept = key(&workdir).trim() == MASTER_KEY;
        assert_eq!(is_kept, count > 3, "{:?}", steps[count - 1]);
        if count == steps.len() {
            // The last step takes the mark away.
            fs::write(folder.join("first-start"), "").unwrap();
            workdir.start("serve").end();
            assert!(leftovers(&folder).is_empty());
        }
    }
}
