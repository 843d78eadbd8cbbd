//! `bellbird doctor`: the checks, and what they advise.

use serde_json::{Value, json};

use super::commands::{without_folder, without_providers};
use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, text};

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

/// As when the unit of the service names another database than bellbird.toml, which commands read.
#[test]
fn doctor_notices_a_service_on_another_database() {
    let (mut own, mut other) = (Workdir::migrated(), Workdir::new());
    own.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    other.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    let service = RunningCommand::start(&own, &format!("serve --json {ANY_PORTS}"));
    let address = |url: &str| text(&service.json(), url).strip_prefix("http://").unwrap().to_owned();
    let (api, console, ops) = (address("apiUrl"), address("consoleUrl"), address("opsUrl"));
    let verdicts = |workdir: &Workdir, api: &str| {
        let listen = format!("--api-listen {api} --console-listen {console} --ops-listen {ops}");
        let output = workdir.run(&format!("doctor --json {listen}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let ports = checks.filter(|check| text(check, "name").ends_with(".listen"));
        ports.map(|check| (text(check, "verdict").to_owned(), text(check, "detail").to_owned())).collect::<Vec<_>>()
    };
    let expected = |address: &str| ("ok".to_owned(), format!("{address} is in use; expected while the service runs"));
    let foreign = |address: &str| {
        let why = "but no instance of this database runs on this machine: another program has it";
        ("wrong".to_owned(), format!("{address} is in use, {why}"))
    };
    let wrong = |address: &str| {
        let detail = format!(
            "the Bellbird at {address} uses another database than this command: give both the same database.url, as in \
             bellbird.toml"
        );
        ("wrong".to_owned(), detail)
    };
    assert_eq!(verdicts(&own, &api), [expected(&api), expected(&console), expected(&ops)]);
    // There is no database yet, then an empty one, then one that is set up.
    let as_wrong = [wrong(&api), foreign(&console), wrong(&ops)];
    assert_eq!(verdicts(&other, &api), as_wrong);
    rusqlite::Connection::open(other.path().join("bellbird.db")).unwrap().execute_batch("VACUUM").unwrap();
    assert_eq!(verdicts(&other, &api), as_wrong);
    other.json("migrate");
    assert_eq!(verdicts(&other, &api), as_wrong);
    // What responds otherwise is another program.
    assert_eq!(verdicts(&other, &console)[0], foreign(&console));
    assert_eq!(service.stop("-TERM").0, Some(0));
}

mod postgres {
    use super::*;
    use crate::support::database::execute;
    use crate::support::harness::postgres_database;

    /// Since PostgreSQL 15, only the owner of a database may create tables in it.
    #[tokio::test]
    async fn doctor_and_migrate_say_what_a_role_lacks() {
        let url = postgres_database().await;
        let (server, database) = url.rsplit_once('/').unwrap();
        let role = format!("guest_of_{database}");
        execute(&url, &format!("DROP ROLE IF EXISTS {role}"), "").await;
        execute(&url, &format!("CREATE ROLE {role} LOGIN"), "").await;
        let mut workdir = Workdir::new();
        let (_, host) = server.rsplit_once('@').unwrap();
        workdir.set("BELLBIRD_DATABASE__URL", &format!("postgres://{role}@{host}/{database}"));
        workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
        let remedy = format!("run `ALTER DATABASE {database} OWNER TO {role}` there as a superuser");
        let error = workdir.error("migrate", 1);
        assert!(error.starts_with("error: could not migrate the PostgreSQL database ") && error.contains(&remedy));
        let output = workdir.run(&format!("doctor --json {ANY_PORTS}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "database").unwrap();
        let detail = text(check, "detail");
        assert!(detail.contains("`bellbird migrate` would fail, because ") && detail.ends_with(&remedy), "{detail}");
        execute(&url, &format!("DROP ROLE {role}"), "").await;
    }
}
