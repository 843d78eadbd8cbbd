//! `bellbird doctor`: the checks, and what they advise.

use serde_json::{Value, json};

use super::commands::{without_folder, without_providers};
use crate::support::process::{Workdir, text};

#[test]
fn doctor_reports_failures() {
    let mut workdir = Workdir::new();
    let free = "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let verdicts = |workdir: &Workdir, code: i32| {
        let output = workdir.run(&format!("doctor --json {free}"));
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["ok"], json!(code == 0));
        let wrong = report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "wrong");
        wrong.map(|check| check["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&workdir, 1), ["secrets.key", "database"]);
    assert!(workdir.folder.path().read_dir().unwrap().next().is_none(), "the doctor created a file");
    workdir.set("BELLBIRD_SECRETS__KEY", "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    workdir.json("migrate");
    assert_eq!(verdicts(&workdir, 0), [""; 0]);
    let shown = workdir.text(&format!("doctor {free}"));
    let shown = shown.replace(bellbird::instances::VERSION, "VERSION");
    insta::assert_snapshot!(without_folder(&without_providers(&shown), &workdir));
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "id");
    assert_eq!(verdicts(&workdir, 1), ["providers"]);
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    workdir.set("BELLBIRD_FISKIL__BASE_URL", "http://127.0.0.1:1");
    assert_eq!(verdicts(&workdir, 1), ["fiskil"]);
    workdir.set("BELLBIRD_READS__ROW_CAP", "0");
    assert_eq!(verdicts(&workdir, 1), ["settings"]);
    let report: Value = serde_json::from_slice(&workdir.run(&format!("doctor --json {free}")).stdout).unwrap();
    assert_eq!(report["error"]["message"], format!("settings: {}", text(&report["checks"][0], "detail")));
}

#[test]
fn doctor_names_the_settings_file_and_notes_odd_settings() {
    let mut workdir = Workdir::migrated();
    workdir.set("BELLBIRD_SECRETS__KEY", "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let file = workdir.path().join("bellbird.toml");
    let toml = "[reads]\ndeadline_seconds = 5\n[fiskil]\nclient_id = \"...\"\nclient_secret = \"s3cret\"\n\
                base_url = \"http://127.0.0.1:1\"\n";
    std::fs::write(&file, toml).unwrap();
    let free = "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let report: Value = serde_json::from_slice(&workdir.run(&format!("doctor --json {free}")).stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "settings");
    let details: Vec<_> = checks.map(|check| format!("{} {}", text(check, "verdict"), text(check, "detail"))).collect();
    assert_eq!(
        details,
        [
            format!("ok read from {}; 8 set, all others at their defaults", file.display()),
            "note reads.deadline_seconds (5) is below reads.provider_timeout_seconds (20): requests end before a slow \
             provider responds"
                .to_owned(),
            "note fiskil.client_id looks like a placeholder: set what Fiskil issued to you".to_owned(),
        ]
    );
    let linking = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "linking").unwrap();
    assert_eq!(text(linking, "verdict"), "note", "{linking}");
}

#[cfg(unix)]
#[test]
fn doctor_notes_files_that_others_may_open() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut workdir = Workdir::new();
    let key = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    std::fs::write(workdir.folder.path().join("key"), format!("{key}\n")).unwrap();
    std::fs::write(workdir.folder.path().join("bellbird.toml"), "[fiskil]\nwebhook_secret = \"x\"\n").unwrap();
    workdir.set("BELLBIRD_SECRETS__KEY_FILE", "key");
    workdir.json("migrate");
    let files = ["bellbird.db", "bellbird.toml", "key"];
    let set_mode = |file: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(workdir.folder.path().join(file), permissions).unwrap();
    };
    let report = || {
        let report =
            workdir.json("doctor --api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0");
        let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "files");
        checks.map(|check| format!("{} {}", text(check, "verdict"), text(check, "detail"))).collect::<Vec<_>>()
    };
    files.iter().for_each(|file| set_mode(file, 0o640));
    assert_eq!(report(), ["ok database, settings and keys are closed to other users of this machine"]);
    files.iter().for_each(|file| set_mode(file, 0o644));
    for (file, note) in files.iter().zip(report()) {
        assert!(note.starts_with("note ") && note.contains(&format!("{file} (mode 0644)")), "{note}");
    }
    assert_eq!(report().len(), files.len());
}

/// A URL that asks for less than TLS of a server elsewhere. Nothing listens there.
#[test]
fn doctor_notes_a_database_without_tls() {
    let mut workdir = Workdir::new();
    for (parameters, is_noted) in [("", false), ("?sslmode=prefer", true), ("?sslmode=disable", true)] {
        workdir.set("BELLBIRD_DATABASE__URL", &format!("postgres://me:x@0.0.0.0:1/db{parameters}"));
        let output = workdir.run("doctor --json --api-listen 127.0.0.1:0");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let notes = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "database TLS");
        assert_eq!(notes.count(), usize::from(is_noted), "{parameters}: {report}");
    }
}
